//! Pages that other clients have changed, invalidated in the kernel while their file stays open.
//!
//! Any answer about a file may show that another client changed it. Its pages are then invalidated in the
//! background, because the kernel may first wait for reads under way that fill them. **Each file has one
//! invalidation at a time, and no second invalidation within the time for which names and attributes are
//! cached**, however often other clients write.

use super::{Invalidate, Untrue};
use shoal_env::Env;
use shoal_proto::Handle;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Shortest pause, where nothing is cached.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// See the module's page. Clones share it.
#[derive(Clone)]
pub(super) struct StalePages {
    env: Env,
    invalidate: Invalidate,
    pause: Duration,
    /// The files whose pages are being invalidated, and whether they were changed again since that began.
    busy: Rc<RefCell<HashMap<Handle, bool>>>,
}

impl StalePages {
    pub(super) fn new(env: Env, invalidate: Invalidate, pause: Duration) -> StalePages {
        StalePages { env, invalidate, pause: pause.max(PAUSE_MIN), busy: Rc::default() }
    }

    /// Another client changed a file whose pages are read.
    pub(super) fn found(&self, object: Handle) {
        if let Some(again) = self.busy.borrow_mut().get_mut(&object) {
            *again = true;
            return;
        }
        self.busy.borrow_mut().insert(object, false);
        let own = self.clone();
        self.env.spawn("stale pages", async move { own.take(object).await });
    }

    async fn take(&self, object: Handle) {
        loop {
            (self.invalidate)(object, Untrue::Pages).await;
            self.env.sleep(self.pause).await;
            let mut busy = self.busy.borrow_mut();
            match busy.get_mut(&object) {
                Some(again) if *again => *again = false,
                _ => {
                    busy.remove(&object);
                    return;
                }
            }
        }
    }
}
