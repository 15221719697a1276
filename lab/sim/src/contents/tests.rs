//! The results that the checker of bytes accepts, and those that it rejects.

use super::floating::are_whole;
use super::*;

const BY: Syncer = Syncer { scope: 3, open: 5, opened: 6 };

/// So many power cuts of the only server.
fn cut(times: u64) -> &'static Stamp {
    let mut stamp = Stamp::new(1);
    (0..times).for_each(|_| stamp.add(0, true, true));
    Box::leak(Box::new(stamp))
}

fn write(called: u64, returned: u64, from: u64, end: u64) -> Act {
    Act {
        kind: "write",
        called,
        returned: (returned > 0).then_some(returned),
        ranges: std::iter::once(from..end).collect(),
        tag: called + 1,
        length: Length::Reaches(end),
        base: Some(0),
        ..Act::default()
    }
}

fn truncate(called: u64, returned: u64, size: u64) -> Act {
    let returned = (returned > 0).then_some(returned);
    let length = Length::Becomes(size);
    Act { kind: "truncate", called, returned, held: Held::Disk, length, base: Some(0), ..Act::default() }
}

fn contents(acts: &[Act]) -> Contents {
    Contents { acts: acts.to_vec(), ..Contents::default() }
}

fn read(called: u64, cuts: u64, len: u64, content: &[u8]) -> Read<'_> {
    Read { client: 0, called, returned: called + 1, now: cut(cuts), from: 0, len, content }
}

#[test]
fn a_write_that_returned_is_seen_whole_and_one_under_way_byte_by_byte() {
    let file = contents(&[write(10, 20, 0, 1000), write(30, 40, 500, 1500)]);
    let (old, new) = (filled(11, 0, 1000), filled(31, 500, 1000));
    let both = [&old[..500], &new[..]].concat();
    assert!(file.judge(&read(50, 0, 1500, &both)).is_ok());
    assert!(file.judge(&read(50, 0, 1500, &both[..1499])).is_err(), "it is longer");
    let longer = [&both[..], &[0]].concat();
    assert!(file.judge(&read(50, 0, 2000, &longer)).is_err(), "it is shorter");
    let torn = [&both[..700], &old[700..], &new[500..]].concat();
    assert!(file.judge(&read(50, 0, 1500, &torn)).is_err(), "bytes that were written over came back");
    assert!(file.judge(&read(35, 0, 1500, &torn)).is_ok(), "at the same time each byte is one writer's");
    assert!(file.judge(&read(35, 0, 1500, &old)).is_ok());
    let foreign = [&both[..600], &[7; 8], &both[608..]].concat();
    let said = file.judge(&read(50, 0, 1500, &foreign)).unwrap_err();
    assert!(said.contains("600") && said.contains("of nobody"), "{said}");
}

#[test]
fn a_power_cut_takes_what_was_not_synced_and_nothing_else() {
    let mut file = contents(&[write(10, 20, 0, 1000), write(30, 40, 0, 1000)]);
    let (old, new) = (filled(11, 0, 1000), filled(31, 0, 1000));
    assert!(file.judge(&read(50, 0, 1000, &old)).is_err(), "no power cut excuses it");
    assert!(file.judge(&read(50, 1, 1000, &old)).is_ok());
    assert!(file.judge(&read(50, 1, 1000, &[])).is_ok(), "nothing of it was synced");
    assert!(file.judge(&read(50, 1, 1000, &[0; 1000])).is_ok());
    assert!(file.judge(&read(50, 1, 1000, &[3; 1000])).is_err());
    file.synced(BY, 25, cut(0));
    assert!(file.judge(&read(50, 1, 1000, &[])).is_err(), "the first write was synced");
    assert!(file.judge(&read(50, 1, 1000, &[&new[..512], &old[512..]].concat())).is_ok(), "torn");
    file.acts[1].scope = BY.scope;
    let mut told = file.clone();
    assert!(file.may_have_lost(BY, cut(1)) && !file.may_have_lost(BY, cut(0)));
    told.lost(Syncer { open: 1, opened: 2, ..BY }, 45, 47);
    let mut meanwhile = file.clone();
    meanwhile.lost(Syncer { open: 1, opened: 2, ..BY }, 35, 47);
    for (open, opened) in [(1, 2), (48, 49), (44, 46)] {
        let by = Syncer { open, opened, ..BY };
        assert_eq!(
            told.may_have_lost(by, cut(1)),
            open == 44,
            "it was told, through {open} or certainly before"
        );
        let mut told = told.clone();
        told.synced(by, 45, cut(1));
        assert!(
            told.judge(&read(50, 1, 1000, &old)).is_ok(),
            "it was told, through {open} or before it was opened"
        );
    }
    for (open, opened) in [(1, 2), (48, 49)] {
        let by = Syncer { open, opened, ..BY };
        assert!(meanwhile.may_have_lost(by, cut(1)), "it was acknowledged behind the fsync's call");
        let mut meanwhile = meanwhile.clone();
        meanwhile.synced(by, 45, cut(1));
        assert!(meanwhile.judge(&read(50, 1, 1000, &old)).is_ok(), "but may have been told of");
    }
    assert!(told.may_have_lost(BY, cut(1)));
    told.synced(BY, 45, cut(1));
    assert!(!told.may_have_lost(BY, cut(1)), "it is durable");
    assert!(told.judge(&read(50, 1, 1000, &old)).is_err(), "it was not told through this one");
    let mut others = file.clone();
    others.synced(Syncer { scope: 4, ..BY }, 45, cut(1));
    assert!(
        others.judge(&read(50, 1, 1000, &old)).is_ok(),
        "another client's fsync behind the cut covers nothing of it"
    );
    others.synced(Syncer { scope: 4, ..BY }, 45, cut(0));
    assert!(others.judge(&read(50, 1, 1000, &old)).is_err(), "before the cut it does");
    file.synced(BY, 45, cut(1));
    assert!(file.judge(&read(50, 1, 1000, &old)).is_err());
    assert!(file.judge(&read(50, 1, 1000, &new)).is_ok());
}

#[test]
fn what_was_cut_away_does_not_come_back() {
    let file = contents(&[write(10, 20, 0, 1000), truncate(30, 40, 400), write(50, 60, 800, 900)]);
    let (old, new) = (filled(11, 0, 1000), filled(51, 800, 100));
    let right = [&old[..400], &[0; 400], &new[..]].concat();
    assert!(file.judge(&read(70, 0, 900, &right)).is_ok());
    let back = [&old[..800], &new[..]].concat();
    assert!(file.judge(&read(70, 0, 900, &back)).is_err(), "old bytes behind the cut");
    assert!(file.judge(&read(45, 0, 1000, &old)).is_err(), "the wrong size");
    assert!(file.judge(&read(45, 0, 1000, &old[..400])).is_ok());
    assert!(file.judge(&read(45, 1, 1000, &[&old[..400], &[0]].concat())).is_err(), "a cut is durable");
    assert!(file.judge_size(900, &read(70, 0, 0, &[])).is_ok());
    assert!(file.judge_size(800, &read(70, 0, 0, &[])).is_err());
    assert!(file.judge_size(901, &read(70, 0, 0, &[])).is_err());
}

#[test]
fn a_write_without_an_answer_may_be_there_or_not_in_part_or_later() {
    let file = contents(&[write(10, 20, 0, 100), write(30, 0, 0, 200)]);
    let (old, new) = (filled(11, 0, 100), filled(31, 0, 200));
    for seen in [&old[..], &new[..], &[&new[..50], &old[50..]].concat()] {
        assert!(file.judge(&read(900, 0, 200, seen)).is_ok());
    }
    assert!(file.judge(&read(900, 0, 200, &old[..99])).is_err());
}

fn append(called: u64, len: u64) -> Act {
    Act { kind: "append", called, len, tag: called + 1, ..Act::default() }
}

#[test]
fn an_append_goes_behind_what_exists_and_apart_from_others() {
    let mut file = contents(&[write(10, 20, 0, 100)]);
    let first = file.begin(append(30, 50));
    assert!(
        file.clone().appended(first, 99, (40, cut(0), Held::Kernel), false).is_err(),
        "over what was written"
    );
    assert!(
        file.clone().appended(first, 0, (40, cut(1), Held::Kernel), false).is_ok(),
        "a power cut may have taken it"
    );
    assert!(file.appended(first, 100, (40, cut(0), Held::Kernel), false).is_ok());
    let second = file.begin(append(35, 50));
    assert!(
        file.clone().appended(second, 100, (60, cut(0), Held::Kernel), false).is_err(),
        "the place of another"
    );
    assert!(file.appended(second, 150, (60, cut(0), Held::Kernel), false).is_ok());
    let content = [filled(11, 0, 100), filled(31, 0, 50), filled(36, 0, 50)].concat();
    assert!(file.judge(&read(70, 0, 500, &content)).is_ok());
    let lost = [filled(11, 0, 100), filled(31, 0, 50), vec![0; 50]].concat();
    assert!(file.judge(&read(70, 0, 500, &lost)).is_err());
    let doubled = [&content[..], &filled(36, 0, 50)].concat();
    assert!(file.judge(&read(70, 0, 500, &doubled)).is_err(), "it was acknowledged once");
}

#[test]
fn an_append_without_an_answer_is_there_at_most_once() {
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(append(30, 50));
    let (old, own) = (filled(11, 0, 100), filled(31, 0, 50));
    let once = [&old[..], &own[..]].concat();
    for seen in [&old[..], &once[..], &once[..120]] {
        assert!(file.judge(&read(70, 0, 500, seen)).is_ok());
        assert!(file.judge_once(seen).is_ok());
    }
    assert!(file.judge(&read(70, 0, 500, &[&old[..], &[9; 50]].concat())).is_err());
    assert!(file.judge_once(&[&once[..], &own[..]].concat()).is_err());
}

#[test]
fn what_is_left_of_an_append_without_an_answer_may_have_the_next_one_behind_it() {
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(append(30, 50));
    file.begin(append(35, 40));
    let (old, first, second) = (filled(11, 0, 100), filled(31, 0, 50), filled(36, 0, 40));
    let left = [&old[..], &first[..30], &second[..]].concat();
    assert!(file.judge(&read(70, 0, 500, &left)).is_ok());
    let middle = [&old[..], &first[..30], &second[5..]].concat();
    assert!(file.judge(&read(70, 0, 500, &middle)).is_err(), "it does not begin there");
    let foreign = [&old[..], &first[..30], &[9; 20]].concat();
    assert!(file.judge(&read(70, 0, 500, &foreign)).is_err());
}

#[test]
fn a_few_bytes_of_an_append_without_an_answer_may_be_all_that_a_later_write_left() {
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(append(30, 500));
    file.begin(write(40, 60, 104, 700));
    let (old, own, later) = (filled(11, 0, 100), filled(31, 0, 500), filled(41, 104, 596));
    let left = [&old[..], &own[..4], &later[..]].concat();
    assert!(file.judge(&read(70, 0, 700, &left)).is_ok());
    let foreign = [&old[..], &[1, 2, 3, 4], &later[..]].concat();
    assert!(file.judge(&read(70, 0, 700, &foreign)).is_err());
    // One byte fits any append by chance.
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(append(30, 500));
    file.begin(write(40, 60, 101, 700));
    let (foreign, later) = ([own[77]], filled(41, 101, 599));
    assert!(file.judge(&read(70, 0, 700, &[&old[..], &foreign, &later].concat())).is_err());
}

#[test]
fn a_later_write_may_leave_the_last_bytes_of_one_append_and_the_first_of_the_next() {
    let file = |end: u64| {
        let mut file = contents(&[write(10, 20, 0, 100)]);
        file.begin(append(30, 500));
        file.begin(append(35, 400));
        file.begin(write(40, 60, 100, 598));
        file.begin(write(40, 60, end, 1000));
        file
    };
    let (old, first, second) = (filled(11, 0, 100), filled(31, 0, 500), filled(36, 0, 400));
    let found = |left: &[u8]| {
        let end = 598 + left.len() as u64;
        let content = [&old[..], &filled(41, 100, 498), left, &filled(41, end, 1000 - end as usize)].concat();
        file(end).judge(&read(70, 0, 1000, &content))
    };
    assert!(found(&[&first[498..], &second[..2]].concat()).is_ok());
    assert!(found(&[&first[498..], &second[..73]].concat()).is_ok());
    assert!(found(&[&first[498..], &second[3..5]].concat()).is_err(), "the next does not begin there");
    assert!(found(&[&first[490..492], &second[..2]].concat()).is_err(), "the first does not end there");
}

#[test]
fn a_single_byte_of_an_append_is_its_own_where_a_longer_piece_shows_the_place() {
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(append(30, 500));
    file.begin(write(40, 60, 100, 300));
    file.begin(write(40, 60, 301, 400));
    let (old, own, later) = (filled(11, 0, 100), filled(31, 0, 500), filled(41, 100, 300));
    let judge = |byte: u8, rest: &[u8]| {
        file.judge(&read(70, 0, 600, &[&old[..], &later[..200], &[byte], &later[201..], rest].concat()))
    };
    assert!(judge(own[200], &own[300..]).is_ok());
    assert!(judge(own[200], &[]).is_err(), "nothing shows that it is there");
    let foreign = own[200] ^ 0x55;
    assert!(foreign != later[200] && judge(foreign, &own[300..]).is_err());
}

#[test]
fn a_single_byte_of_an_append_is_its_own_where_the_next_append_begins_at_its_end() {
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(append(30, 500));
    let next = file.begin(append(40, 50));
    file.appended(next, 600, (50, cut(0), Held::Kernel), false).unwrap();
    file.begin(write(60, 70, 100, 300));
    file.begin(write(60, 70, 301, 650));
    let (old, own, later) = (filled(11, 0, 100), filled(31, 0, 500), filled(61, 100, 550));
    let judge =
        |byte: u8| file.judge(&read(80, 0, 700, &[&old[..], &later[..200], &[byte], &later[201..]].concat()));
    assert!(judge(own[200]).is_ok());
    let foreign = own[199];
    assert!(foreign != own[200] && foreign != later[200] && judge(foreign).is_err(), "another byte of it");
}

/// Whether the checker rejects bytes that were never written.
fn is_plain(tag: u64, len: usize) -> bool {
    !filled(tag, 0, len).contains(&0)
}

#[test]
fn an_append_without_an_answer_is_not_twice_in_a_row_though_the_first_time_in_part() {
    let plain: Vec<u64> = (31..).filter(|tag| is_plain(*tag, 50)).take(2).collect();
    let mut file = contents(&[write(10, 20, 0, 100)]);
    file.begin(Act { tag: plain[0], ..append(30, 50) });
    file.begin(Act { tag: plain[1], ..append(35, 40) });
    let (old, first, second) = (filled(11, 0, 100), filled(plain[0], 0, 50), filled(plain[1], 0, 40));
    let judge = |pieces: &[&[u8]]| file.judge(&read(70, 0, 500, &[&[&old[..]], pieces].concat().concat()));
    for begun in [30, 12, 50] {
        assert!(judge(&[&first[..begun], &first]).is_err(), "{begun} bytes, and all of it");
        assert!(
            judge(&[&second[..begun.min(40)], &first, &second]).is_err(),
            "{begun} bytes, another, all of it"
        );
        assert!(judge(&[&first[..begun], &second]).is_ok());
        assert!(judge(&[&first[..begun], &second[..9]]).is_ok());
    }
    assert!(judge(&[&second, &first]).is_ok());
    assert!(judge(&[&first[..3], &second]).is_ok(), "three bytes of it were there to be written");
}

#[test]
fn at_every_border_of_appends_the_next_ones_first_bytes_may_be_what_comes_next_by_chance() {
    let border = |tag: u64, len: usize, next: u64| filled(tag, len as u64, 1) == filled(next, 0, 1);
    let chance = |tag: u64| (tag + 1..).find(|next| is_plain(*next, 21) && border(tag, 20, *next)).unwrap();
    let first = (31..).find(|tag| is_plain(*tag, 21)).unwrap();
    let second = chance(first);
    let third = chance(second);
    let mut file = contents(&[write(10, 20, 0, 100)]);
    for tag in [first, second, third] {
        file.begin(Act { tag, ..append(30, 40) });
    }
    let pieces = [filled(11, 0, 100), filled(first, 0, 20), filled(second, 0, 20), filled(third, 0, 40)];
    assert!(file.judge(&read(70, 0, 500, &pieces.concat())).is_ok());
}

#[test]
fn a_few_foreign_bytes_are_not_an_end_of_one_append_and_the_beginning_of_another() {
    let file = contents(&[write(10, 20, 0, 100), Act { len: 5000, ..append(30, 0) }, append(35, 40)]);
    let (old, first, second) = (filled(11, 0, 100), filled(31, 0, 5000), filled(36, 0, 40));
    // Of a long append every byte is somewhere.
    for at in 10..90 {
        let foreign = [first[4000 + at], second[0]];
        let is_window = first.windows(2).chain(second.windows(2)).any(|window| window == foreign);
        if !is_window && foreign.iter().zip(&old[at..]).all(|(one, other)| one != other) {
            let found = [&old[..at], &foreign, &old[at + 2..]].concat();
            assert!(file.judge(&read(70, 0, 100, &found)).is_err(), "at {at}");
        }
    }
    let border = [&old[..], &first[..30], &second].concat();
    for from in 120..129 {
        let read = Read { from, ..read(70, 0, 10, &border[from as usize..from as usize + 10]) };
        assert!(file.judge(&read).is_ok(), "from {from}");
    }
}

/// Strips of 100 bytes on the servers 2, 0 and 1, of which the first was the metafile's alone.
fn dealt(acts: &[Act]) -> Contents {
    let places = Places { home: Some(2), stuffed: 100, strip: 100, dealt: vec![2, 0, 1] };
    let mut contents = Contents { places, ..Contents::default() };
    acts.iter().for_each(|act| {
        contents.begin(act.clone());
    });
    contents
}

#[test]
fn an_append_whose_answer_is_kept_may_have_lost_its_end_to_another_before_it_is_answered() {
    let overlaps = |at_fault: &'static Stamp| {
        let mut file = dealt(&[write(10, 20, 0, 150)]);
        let own = file.begin(Act { stamp: Stamp::new(3), ..append(30, 100) });
        let other = file.begin(Act { stamp: at_fault.clone(), ..append(50, 50) });
        file.appended(other, 200, (60, at_fault, Held::Kernel), false).unwrap();
        file.appended(own, 150, (70, at_fault, Held::Kernel), false)
    };
    overlaps(fault(1, true)).expect("server 1 had its bytes from 200 on");
    assert!(overlaps(fault(0, true)).is_err() && overlaps(fault(1, false)).is_err());
}

/// All servers are well but this one, which had a power cut, or was killed.
fn fault(server: u16, is_cut: bool) -> &'static Stamp {
    let mut stamp = Stamp::new(3);
    stamp.add(server, is_cut, true);
    Box::leak(Box::new(stamp))
}

#[test]
fn a_loss_is_excused_only_on_the_server_that_had_the_fault() {
    let mut file = dealt(&[write(10, 20, 0, 250), write(30, 40, 0, 250)]);
    let (old, new) = (filled(11, 0, 250), filled(31, 0, 250));
    let read = |now| Read { now, ..read(50, 0, 250, &[]) };
    let judge = |file: &Contents, now, content: &[u8]| file.judge(&Read { content, ..read(now) }).is_ok();
    // Bytes 100 to 200 are on server 0.
    let lost = [&new[..100], &old[100..200], &new[200..]].concat();
    assert!(judge(&file, fault(0, true), &lost));
    assert!(!judge(&file, fault(1, true), &lost) && !judge(&file, fault(2, true), &lost));
    assert!(!judge(&file, fault(0, false), &lost), "a kill takes nothing that the kernel has");
    assert!(!judge(&file, fault(0, true), &new[..200]), "server 1 knows that the file is longer");
    assert!(judge(&file, fault(1, true), &new[..200]));
    assert!(!judge(&file, fault(1, true), &new[..199]));
    file.synced(Syncer { scope: 9, ..BY }, 45, fault(1, true));
    assert!(!judge(&file, fault(0, true), &lost), "another client's fsync covers what server 1 did not hold");
    assert!(judge(&file, fault(1, true), &new[..200]));
    file.acts[1].held = Held::Memory;
    file.acts[1].synced = 0;
    assert!(judge(&file, fault(0, false), &lost), "what only the process held a kill takes");
}

#[test]
fn a_file_whose_layout_is_not_known_may_lose_by_any_server_what_is_beyond_its_first_strip() {
    let mut file = contents(&[write(10, 20, 0, 150)]);
    file.made(2, 100, 100);
    let content = filled(11, 0, 150);
    let judge = |now, content: &[u8]| file.judge(&Read { now, ..read(50, 0, 150, content) }).is_ok();
    for server in 0..3 {
        assert!(judge(fault(server, true), &content[..100]), "{server}");
        let torn = [&[0; 100], &content[100..]].concat();
        assert_eq!(judge(fault(server, true), &torn), server == 2);
    }
}

#[test]
fn a_refused_append_to_a_file_whose_layout_is_not_known_may_end_where_a_strip_does() {
    let refused = Act { kind: "append", returned: None, base: None, len: 40, tag: 77, ..append(20, 40) };
    let mut file = contents(&[write(10, 12, 0, 93), refused]);
    let content = [filled(11, 0, 93), filled(77, 0, 7), vec![0; 20]].concat();
    file.begin(Act { length: Length::Becomes(120), returned: Some(45), called: 44, ..write(44, 45, 0, 0) });
    let judge = |file: &Contents| file.judge(&read(50, 0, 120, &content)).is_ok();
    assert!(!judge(&file), "seven bytes fit by chance");
    file.made(2, 100, 100);
    assert!(judge(&file), "one server refused its share of it, from 100 on");
}

#[test]
fn short_appends_without_a_place_may_lie_side_by_side_whole_and_each_once() {
    let all = [vec![1], vec![2], vec![3, 4]];
    let fits = |bytes: &[u8]| are_whole(&all, &mut vec![0, 1, 2], bytes);
    assert!(fits(&[1, 2]) && fits(&[2, 1]) && fits(&[3, 4, 1]));
    assert!(!fits(&[1, 1]) && !fits(&[1, 3]) && !fits(&[1, 9]));
}

#[test]
fn an_append_under_way_at_a_reported_loss_may_be_reported_as_the_clients_other_writes_are() {
    let (kernel, memory) = (Held::Kernel, Held::Memory);
    let mut kept = Act { scope: BY.scope, noted: kernel, ..append(20, 50) };
    let other = Act { scope: BY.scope, noted: memory, ..write(10, 12, 0, 50) };
    let killed = fault(1, false);
    (kept.held, kept.compared) = (kernel, killed.clone());
    for (acts, is_excused) in [(vec![other, kept.clone()], true), (vec![kept], false)] {
        let mut file = contents(&acts);
        file.lost(BY, 30, 31);
        let append = file.acts.len() - 1;
        file.appended(append, 50, (40, killed, kernel), false).expect("it lies behind the write");
        assert_eq!(file.may_have_lost(BY, killed), is_excused);
    }
}
