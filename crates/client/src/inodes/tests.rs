//! Tests of the state that all open files of one inode share.

use super::*;
use crate::fake::file_attr;
use shoal_proto::Dist;

const FILE: Handle = Handle(7);
const SERVER: ServerId = ServerId(1);

fn open(inodes: &mut Inodes) -> (Rc<Inode>, u64) {
    let inode = inodes.opened(&file_attr(FILE));
    let seen = inode.reported();
    (inode, seen)
}

/// Lost with the machine, or with a failed sync.
fn kept(kept: u64) -> Loss {
    Loss { kept, start: 0 }
}

/// Lost with the server's process, too.
fn unkept(start: u64) -> Loss {
    Loss { kept: 1, start }
}

fn sync(inode: &Inode, loss: u64) {
    let before = inode.before();
    inode.compare(&before, SERVER, kept(loss));
    inode.covered(&before);
}

#[test]
fn a_loss_is_reported_once_to_each_open_file_and_not_to_those_opened_after_a_report() {
    let mut inodes = Inodes::default();
    let ((inode, mut first), (_other, mut second)) = (open(&mut inodes), open(&mut inodes));
    inode.written(SERVER, kept(1));
    sync(&inode, 2);
    let (_, mut unreported) = open(&mut inodes);
    assert!(inode.report(&mut first) && !inode.report(&mut first));
    let (_, mut third) = open(&mut inodes);
    assert!(!inode.report(&mut third), "it was reported before this one was opened");
    assert!(inode.report(&mut second) && !inode.report(&mut second));
    assert!(inode.report(&mut unreported), "opened when nobody had reported it");
    inode.written(SERVER, kept(2));
    sync(&inode, 2);
    assert!(!inode.report(&mut first) && !inode.report(&mut third));
    inode.written(SERVER, kept(2));
    inode.written(SERVER, kept(3));
    sync(&inode, 3);
    assert!(inode.report(&mut first) && inode.report(&mut third), "the next loss is another one");
}

#[test]
fn writes_that_were_not_synced_and_losses_that_were_not_reported_outlive_the_last_close() {
    let mut inodes = Inodes::default();
    let (inode, _) = open(&mut inodes);
    inode.written(SERVER, kept(1));
    inodes.closed(&inode);
    let (inode, mut seen) = open(&mut inodes);
    sync(&inode, 2);
    inodes.closed(&inode);
    drop(inode);
    let (inode, mut later) = open(&mut inodes);
    assert!(inode.report(&mut later), "found, and reported to nobody");
    assert!(inode.report(&mut seen));
    inodes.closed(&inode);
    assert!(inodes.closed.is_empty() && inodes.open.is_empty(), "settled inodes take no space");
}

#[test]
fn a_sync_under_way_covers_what_was_written_before_it_began_and_hides_nothing_from_another() {
    let mut inodes = Inodes::default();
    let ((inode, mut first), (_other, mut second)) = (open(&mut inodes), open(&mut inodes));
    inode.written(SERVER, kept(1));
    let (one, two) = (inode.before(), inode.before());
    inode.written(SERVER, kept(1));
    // Both found the same loss: it is one.
    inode.compare(&one, SERVER, kept(2));
    inode.compare(&two, SERVER, kept(2));
    inode.covered(&one);
    assert!(inode.report(&mut first) && inode.report(&mut second));
    assert!(inode.loss_of(SERVER).is_some(), "the later write is not covered");
    inode.covered(&two);
    assert!(inode.loss_of(SERVER).is_some());
    sync(&inode, 2);
    assert!(inode.loss_of(SERVER).is_none() && !inode.report(&mut first) && !inode.report(&mut second));
}

#[test]
fn a_kill_takes_nothing_of_what_was_kept_while_a_sync_covered_what_was_not() {
    let mut inodes = Inodes::default();
    let (inode, mut seen) = open(&mut inodes);
    let came_back = |start| Loss { kept: 1, start };
    inode.written(SERVER, unkept(8));
    let under_way = inode.before();
    inode.written(SERVER, kept(1));
    inode.compare(&under_way, SERVER, came_back(8));
    inode.covered(&under_way);
    // The server was killed.
    let next = inode.before();
    inode.compare(&next, SERVER, came_back(9));
    inode.covered(&next);
    assert!(!inode.report(&mut seen), "the later write was with the kernel");
    inode.written(SERVER, unkept(9));
    let under_way = inode.before();
    inode.written(SERVER, unkept(9));
    inode.covered(&under_way);
    inode.compare(&inode.before(), SERVER, came_back(10));
    assert!(inode.report(&mut seen), "and here the later write was not");
}

#[test]
fn an_older_answer_does_not_bring_an_older_layout_back() {
    let mut inodes = Inodes::default();
    let (inode, _) = open(&mut inodes);
    let layout = Layout { dist: Dist::Basic, datafiles: vec![FILE].into(), generation: Generation(5) };
    inode.laid(layout.clone());
    inodes.learn(&Attr { generation: Generation(4), ..file_attr(FILE) });
    assert!(inode.shape().layout.is_some());
    inodes.learn(&Attr { generation: Generation(6), layout: Some(layout), ..file_attr(FILE) });
    assert_eq!(inode.shape().generation, Generation(6));
}

#[test]
fn a_layout_that_a_power_cut_took_back_is_forgotten_by_an_answer_that_was_asked_for_since() {
    let mut inodes = Inodes::default();
    let (inode, _) = open(&mut inodes);
    let layout = Layout { dist: Dist::Basic, datafiles: vec![FILE].into(), generation: Generation(5) };
    let stuffed = Attr { generation: Generation(4), ..file_attr(FILE) };
    let before = inode.shape();
    inode.laid(layout);
    inode.learn_since(&before, &stuffed);
    assert!(inode.shape().layout.is_some(), "it was laid out after this was asked for");
    inode.learn_since(&inode.shape(), &stuffed);
    assert!(inode.shape().layout.is_none() && inode.shape().generation == Generation(4));
}

#[test]
fn a_sync_of_all_servers_reports_losses_of_open_closed_and_forgotten_inodes_once() {
    let sync = |inodes: &mut Inodes, synced: &[(ServerId, u64)]| {
        let before = inodes.all_before();
        inodes.compare_all(&before, &synced.iter().map(|&(server, loss)| (server, kept(loss))).collect());
        inodes.report_by_all()
    };
    for closed in [false, true] {
        for forgotten in [false, true] {
            let mut inodes = Inodes { closed_max: usize::from(!forgotten), ..Inodes::default() };
            let (inode, mut seen) = open(&mut inodes);
            inode.written(SERVER, kept(1));
            if closed {
                inodes.closed(&inode);
            }
            assert!(sync(&mut inodes, &[(SERVER, 2)]), "closed: {closed}, forgotten: {forgotten}");
            assert!(!sync(&mut inodes, &[(SERVER, 2)]));
            if !closed {
                assert!(inode.report(&mut seen), "the open file reports it too");
            }
            inodes.changed(Handle(8), SERVER, kept(2));
            assert!(!sync(&mut inodes, &[]), "its server did not answer");
            assert!(sync(&mut inodes, &[(SERVER, 3)]), "it is not forgotten for that");
        }
    }
}

#[test]
fn what_a_kill_of_the_server_takes_is_found_lost_by_the_next_fsync_and_by_no_other() {
    let mut inodes = Inodes::default();
    let inode = inodes.opened(&file_attr(FILE));
    let lost = |first: Loss, second: Loss, now: Loss| {
        let mut seen = inode.reported();
        inode.written(SERVER, first);
        inode.written(SERVER, second);
        let before = inode.before();
        inode.compare(&before, SERVER, now);
        inode.covered(&before);
        inode.report(&mut seen)
    };
    assert!(!lost(unkept(5), unkept(5), unkept(5)));
    assert!(lost(unkept(5), unkept(5), unkept(6)));
    assert!(!lost(kept(1), kept(1), unkept(6)), "a kill does not take it");
    assert!(lost(kept(2), kept(2), unkept(6)), "a power cut does");
    // One that is kept and one that is not, in either order; the first is lost before or after the second
    // came.
    assert!(lost(unkept(5), kept(1), unkept(6)));
    assert!(lost(kept(1), unkept(5), unkept(6)));
    assert!(lost(unkept(5), unkept(6), unkept(6)));
    assert!(!lost(kept(1), unkept(6), unkept(6)));
}

#[test]
fn a_loss_is_found_by_the_fsync_that_was_under_way_though_a_weaker_write_was_acknowledged_meanwhile() {
    let mut inodes = Inodes::default();
    let (inode, mut seen) = open(&mut inodes);
    // Survives a kill, not a power cut.
    inode.written(SERVER, kept(1));
    let before = inode.before();
    // Acknowledged before the power cut, by a request that asked for nothing (`Unheld`).
    inode.written(SERVER, unkept(5));
    // The fsync is answered after it.
    inode.compare(&before, SERVER, Loss { kept: 2, start: 6 });
    inode.covered(&before);
    assert!(inode.report(&mut seen), "the first write is lost, and this fsync was to make it durable");
}

#[test]
fn what_a_kill_takes_of_a_write_in_memory_is_not_reported_again_for_an_append_that_it_does_not_take() {
    let mut inodes = Inodes::default();
    let (inode, mut seen) = open(&mut inodes);
    inode.written(SERVER, unkept(1));
    assert_eq!(inode.loss_of(SERVER), None, "an append may be kept better");
    inode.asked(SERVER, kept(1));
    let own = inode.loss_of(SERVER).unwrap();
    assert_eq!(own, kept(1));
    // The server is killed while the append is under way. A sync finds it, and then the append is
    // acknowledged.
    let before = inode.before();
    inode.compare(&before, SERVER, unkept(2));
    inode.covered(&before);
    assert!(inode.report(&mut seen));
    inode.written_since(SERVER, own);
    let before = inode.before();
    inode.compare(&before, SERVER, unkept(2));
    inode.covered(&before);
    assert!(!inode.report(&mut seen));
    assert_eq!(inode.loss_of(SERVER), None, "what was asked before the sync");
}
