//! The refusals of a server that must not serve.
//!
//! A server whose store is missing listens where its clients know it, and refuses each connection with the
//! reason. So a client fails at once with an error. Otherwise it would wait for a server that does not
//! answer. Nothing is read from any store.

use crate::net::connection::{self, Frames, Line, Refused, Scratch};
use crate::tasks::Tasks;
use shoal_env::{Address, Env, Listener, Stream};
use shoal_proto::Status;
use shoal_proto::message::VERSIONS;
use std::rc::Rc;
use std::time::Duration;

/// A refusal takes no longer than this.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after an accept failed.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections refused at once; one more is closed without words.
const AT_ONCE_MAX: usize = 64;

/// Listens, and refuses, until it is dropped.
pub struct Refusing(Tasks);

impl Refusing {
    /// Refuse connections to `listen` with `status` and these words. An address at which it cannot listen is
    /// left out.
    pub async fn begin(env: &Env, listen: &[Address], status: Status, words: &str) -> Refusing {
        let tasks = Tasks::default();
        let refused = Rc::new(Refused::new(status, words));
        for address in listen {
            match env.listen(address).await {
                Ok(listener) => {
                    let accepting = accept(env.clone(), listener, refused.clone());
                    tasks.spawn(env, "refuse", accepting);
                }
                Err(error) => tracing::warn!(%address, %error, "no connection can be refused here"),
            }
        }
        Refusing(tasks)
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn accept(env: Env, mut listener: Listener, refused: Rc<Refused>) {
    let tasks = Tasks::default();
    loop {
        match listener.accept().await {
            Ok(stream) if tasks.len() < AT_ONCE_MAX => {
                tasks.spawn(&env, "refusal", turn_away(env.clone(), stream, refused.clone()));
            }
            Ok(_) => {}
            Err(_) => env.sleep(PAUSE).await,
        }
    }
}

async fn turn_away(env: Env, stream: Stream, refused: Rc<Refused>) {
    let Stream { mut reader, mut writer, peer } = stream;
    let until = env.now() + TIMEOUT;
    let told = async {
        let mut frames = Frames::new(Scratch::new(env.counters()));
        connection::hear(&mut reader, &mut frames).await;
        connection::refuse(&Line::new(peer, VERSIONS.1), &mut writer, &refused).await;
        writer.close().await
    };
    if env.deadline(until, told).await.is_err() {
        tracing::debug!("a refused connection did not take its refusal");
    }
}
