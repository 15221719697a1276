//! One server of a fake cluster with a real listener, and faults by script.

use super::{FakeCluster, KEY};
use bytes::{Bytes, BytesMut};
use shoal_env::{Env, Listener, Stream};
use shoal_proto::codec::Codec;
use shoal_proto::message::{Attach, Attached, Challenge, Hello, Refusal, Request, VERSIONS};
use shoal_proto::seal::{Ends, Handshake, PrivateKey, admit};
use shoal_proto::{Frame, FrameKind, Seal, SecretKey, ServerId, SessionId, Status, StoreId};
use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;

/// The fault of the next connection or request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// All is well for so many requests.
    Serve(usize),
    /// The handshake is refused.
    Refuse(Status, &'static str),
    /// The server does not have the key.
    Impostor,
    /// The connection ends before the request is read.
    CutBefore,
    /// The connection ends after the request's execution.
    CutBehind,
    /// The request is never answered.
    Silence,
    /// Nothing more is answered on this connection.
    Deaf,
    /// All connections from here on have frames that are sealed so far.
    Seals(Seal),
    /// A middle man changes the frame of the reply, and may use all sealed frames of this side on this
    /// connection, that one included.
    Changed(fn(Vec<u8>, &[Vec<u8>]) -> Vec<u8>),
    /// A middle man changes the first two messages.
    Downgraded(fn(&mut Hello), fn(&mut Challenge)),
    /// A middle man refuses the handshake, without a seal.
    RefuseBare(Status),
    /// A middle man answers the first message, with this refusal.
    RefuseHello(Status),
    /// A middle man answers the first message, with a challenge of another version, without a proof.
    ChallengeBare,
}

/// Serve the connections of `listener`, one after the other; when the script ends all is well.
pub(crate) async fn serve(
    env: Env,
    mut listener: Listener,
    server: ServerId,
    cluster: Rc<RefCell<FakeCluster>>,
    mut script: Vec<Fault>,
) {
    script.reverse();
    let mut sessions = 0;
    let mut seal = Seal::Off;
    while let Ok(stream) = listener.accept().await {
        if let Some(Fault::Seals(wanted)) = script.last() {
            seal = *wanted;
            script.pop();
        }
        let mut session = Connection { stream, buf: BytesMut::new(), seal, ends: None, sent: Vec::new() };
        // A client that goes away in the middle ends its connection only.
        let _ = session.serve(&env, server, &cluster, &mut script, &mut sessions).await;
    }
}

struct Connection {
    stream: Stream,
    buf: BytesMut,
    seal: Seal,
    ends: Option<Ends>,
    /// The sealed frames that were made.
    sent: Vec<Vec<u8>>,
}

/// The changes that a middle man makes to the first two messages.
type Middle = (fn(&mut Hello), fn(&mut Challenge));

impl Connection {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((mut frame, sealed)) = Frame::take_any(&mut self.buf).unwrap() {
                admit(self.ends.as_mut().map(|ends| &mut ends.opener), &mut frame, sealed).unwrap();
                return Some(frame);
            }
            let mut chunk = [0; 4096];
            match self.stream.reader.read(&mut chunk).await {
                Ok(n) if n > 0 => self.buf.extend_from_slice(&chunk[..n]),
                _ => return None,
            }
        }
    }

    async fn send<T: Codec>(&mut self, kind: FrameKind, tag: u64, message: &T, bulk: &Bytes) -> Option<()> {
        let bytes = self.framed(kind, tag, message, bulk);
        self.put(&bytes).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.writer.write_all(&mut [IoSlice::new(bytes)]).await.ok()
    }

    fn framed<T: Codec>(&mut self, kind: FrameKind, tag: u64, message: &T, bulk: &Bytes) -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::put(kind, VERSIONS.1, tag, message, bulk.len(), &mut bytes);
        match &mut self.ends {
            Some(ends) => {
                ends.sealer.seal_whole(&mut bytes, 0, bulk);
                self.sent.push(bytes.clone());
            }
            None => bytes.extend_from_slice(bulk),
        }
        bytes
    }

    async fn serve(
        &mut self,
        env: &Env,
        server: ServerId,
        cluster: &RefCell<FakeCluster>,
        script: &mut Vec<Fault>,
        sessions: &mut u64,
    ) -> Option<()> {
        let mut hello: Hello = self.next().await?.message().unwrap();
        let middle: Middle = match script.last() {
            Some(Fault::Downgraded(first, second)) => (*first, *second),
            _ => (|_| (), |_| ()),
        };
        middle.0(&mut hello);
        if let Some(Fault::RefuseHello(status)) = script.last().cloned() {
            script.pop();
            let refusal = Refusal { status, words: "a lie".into() };
            return self.send(FrameKind::Refusal, 0, &refusal, &Bytes::new()).await;
        }
        let mut random = [0; 32];
        env.random(&mut random);
        let private = PrivateKey::new(random);
        let key = match script.last() {
            Some(Fault::Impostor) => {
                script.pop();
                SecretKey::new([0; 32])
            }
            _ => KEY,
        };
        let mut challenge = Challenge {
            version: VERSIONS.1,
            nonce: private.public(),
            server,
            store: StoreId::NONE,
            map_epoch: 0,
            proof: [0; 32],
            peer_proof: [0; 32],
            seal: self.seal,
        };
        challenge.prove(&key, &key, &hello);
        middle.1(&mut challenge);
        if let Some(Fault::ChallengeBare) = script.last() {
            script.pop();
            challenge.version = VERSIONS.1 + 92;
        }
        self.send(FrameKind::Challenge, 0, &challenge, &Bytes::new()).await?;
        let attach = self.next().await?;
        if attach.kind == FrameKind::Refusal {
            return None;
        }
        let attach: Attach = attach.message().unwrap();
        let shared = attach.exchange(VERSIONS.1, &private).unwrap();
        assert!(attach.is_proven(&KEY, &hello, &challenge, shared.as_ref()), "the client has the key");
        if self.seal.is_on() {
            let handshake = Handshake { hello: &hello, challenge: &challenge, attach: &attach };
            self.ends = Some(handshake.end_of_server(&KEY, &private.exchange(&hello.nonce).unwrap()));
        }
        if let Some(Fault::RefuseBare(status)) = script.last().cloned() {
            script.pop();
            let (ends, refusal) = (self.ends.take(), Refusal { status, words: "a lie".into() });
            let refused = self.send(FrameKind::Refusal, 0, &refusal, &Bytes::new()).await;
            self.ends = ends;
            return refused;
        }
        if let Some(Fault::Refuse(status, words)) = script.last().cloned() {
            script.pop();
            return self
                .send(FrameKind::Refusal, 0, &Refusal { status, words: words.into() }, &Bytes::new())
                .await;
        }
        let session = attach.session.unwrap_or_else(|| {
            *sessions += 1;
            SessionId(*sessions)
        });
        let map_epoch = cluster.borrow().map.epoch;
        let (credit_bytes, eager_bytes) = (1 << 20, 16 << 10);
        let attached =
            Attached { session, slots: 4, lease_ms: 30_000, credit_bytes, eager_bytes, map_epoch, loss: 1 };
        self.send(FrameKind::Attached, 0, &attached, &Bytes::new()).await?;
        loop {
            let frame = self.next().await?;
            if frame.kind == FrameKind::Leave {
                continue;
            }
            let request: Request = frame.message().unwrap();
            let fault = match script.last_mut() {
                Some(Fault::Serve(left)) if *left > 0 => {
                    *left -= 1;
                    None
                }
                Some(Fault::Serve(_)) => {
                    script.pop();
                    script.pop()
                }
                Some(
                    Fault::CutBefore | Fault::CutBehind | Fault::Silence | Fault::Deaf | Fault::Changed(_),
                ) => script.pop(),
                _ => None,
            };
            match fault {
                Some(Fault::CutBefore) => return None,
                Some(Fault::Silence) => continue,
                Some(Fault::Deaf) => loop {
                    self.next().await?;
                },
                _ => {}
            }
            let (reply, bulk) = cluster.borrow_mut().execute(server, session, &request, frame.bulk);
            if matches!(fault, Some(Fault::CutBehind)) {
                return None;
            }
            let mut bytes = self.framed(FrameKind::Reply, frame.tag, &reply, &bulk);
            if let Some(Fault::Changed(change)) = fault {
                bytes = change(bytes, &self.sent);
            }
            self.put(&bytes).await?;
        }
    }
}
