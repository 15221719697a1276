//! The queue from the event loops to the client.
//!
//! It has no lock. A burst of requests does not wake a client that runs, and wakes a sleeping client only
//! once. The queue needs no bound of its own, because the kernel bounds it: each program waits for its
//! request, and without a waiting program the kernel has at most
//! [`BACKGROUND_MAX`](crate::options::BACKGROUND_MAX) requests under way. There are at most as many
//! `Forget` messages as answers that named an object.

use crate::fs::Fs;
use futures_channel::mpsc;
use futures_util::future::LocalBoxFuture;
use shoal_proto::Handle;
use shoal_vfs::Vfs;
use std::rc::Rc;

/// A message to the client.
pub(crate) enum Message<V: Vfs> {
    /// A request with its reply, and the thread that waits for it; 0: none that could be interrupted.
    Run(u32, Box<dyn FnOnce(Rc<Fs<V>>) -> LocalBoxFuture<'static, ()> + Send>),
    /// The kernel has forgotten an object of so many answers.
    Forget(Handle, u64),
    /// The kernel asks nothing more.
    End,
}

/// The event loops' end.
pub(crate) struct Queue<V: Vfs>(mpsc::UnboundedSender<Message<V>>);

impl<V: Vfs> Clone for Queue<V> {
    fn clone(&self) -> Queue<V> {
        Queue(self.0.clone())
    }
}

/// A queue's two ends.
pub(crate) fn queue<V: Vfs>() -> (Queue<V>, mpsc::UnboundedReceiver<Message<V>>) {
    let (send, receive) = mpsc::unbounded();
    (Queue(send), receive)
}

impl<V: Vfs> Queue<V> {
    /// Run a request in the client's world. If that is gone the request is dropped, and its reply with it.
    pub(crate) fn run<F>(&self, thread: u32, request: impl FnOnce(Rc<Fs<V>>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let request = Box::new(move |fs| Box::pin(request(fs)) as LocalBoxFuture<'static, ()>);
        if self.0.unbounded_send(Message::Run(thread, request)).is_err() {
            tracing::debug!("a request came after the client had ended");
        }
    }

    /// The kernel has forgotten an object of so many answers.
    pub(crate) fn forget(&self, object: Handle, answers: u64) {
        // No receiver: it has ended.
        let _ = self.0.unbounded_send(Message::Forget(object, answers));
    }

    /// No request follows.
    pub(crate) fn end(&self) {
        // No receiver: it has ended.
        let _ = self.0.unbounded_send(Message::End);
    }
}
