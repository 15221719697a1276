//! Calls of threads at their end.

use shoal_env::real::Runtime;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

struct Last(ManuallyDrop<Runtime>, Sender<u32>);

impl Last {
    fn call(&self) {
        let env = self.0.env();
        let answer = self.0.block_on(async {
            env.sleep(Duration::from_millis(1)).await;
            7
        });
        let _ = self.1.send(answer);
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.call();
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

#[test]
fn a_call_of_a_thread_whose_variables_are_gone_is_done() {
    for make in [Runtime::new, Runtime::shared] {
        let (send, answers) = channel();
        let thread = std::thread::spawn(move || {
            // Before the runtime's variables, so it is destroyed after them.
            LAST.with(|last| *last.borrow_mut() = None);
            let own = Last(ManuallyDrop::new(make("test")), send);
            if let Some(turn) = own.0.turn() {
                assert!(turn.take(Duration::from_secs(1)));
            }
            own.call();
            LAST.with(|last| *last.borrow_mut() = Some(own));
        });
        thread.join().expect("the thread ends");
        assert_eq!(answers.iter().collect::<Vec<_>>(), [7, 7]);
    }
}
