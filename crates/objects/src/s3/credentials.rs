//! Credentials of a service (of a machine, a container, a web identity), which end and are got anew.
//!
//! The crate asks the service for new ones five minutes before the old ones end, and fails if it does not
//! answer. **Here the old ones are used as long as the store takes them.** Those that it calls expired are
//! forgotten, and the request is repeated with new ones.

use super::answers::{Judged, short};
use super::{AmazonS3Builder, AwsCredential, AwsCredentialProvider, CredentialProvider, StoreError, timeout};
use crate::store::Refusal;
use futures_util::future::BoxFuture;
use shoal_env::Instant;
use shoal_env::real;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time for an answer of the service while there are old credentials.
const RENEW_MAX: Duration = Duration::from_secs(3);
/// After a failure the service is not asked again for this time while there are old credentials.
const AWAY: Duration = Duration::from_secs(10);

/// Whether the store called the credentials expired since they were got.
pub(super) type Expired = Arc<AtomicBool>;

/// See the module.
pub(super) struct Kept {
    builder: AmazonS3Builder,
    expired: Expired,
    state: Mutex<State>,
}

struct State {
    service: AwsCredentialProvider,
    last: Option<Arc<AwsCredential>>,
    /// It gave some before.
    has_given: bool,
    away_until: Option<Instant>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("credentials of a service")
    }
}

impl Kept {
    /// The credentials that a builder names.
    pub(super) fn new(builder: AmazonS3Builder, expired: Expired) -> Result<Kept, StoreError> {
        let service = service(&builder)?;
        let state = State { service, last: None, has_given: false, away_until: None };
        Ok(Kept { builder, expired, state: Mutex::new(state) })
    }

    fn state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The old credentials, or why there are none.
    fn old(&self, why: StoreError) -> Result<Arc<AwsCredential>, StoreError> {
        self.state(|state| match (&state.last, state.has_given) {
            (Some(last), _) => {
                state.away_until = Some(real::now() + AWAY);
                Ok(last.clone())
            }
            (None, true) => Err(passing(&short(&why))),
            // It is none, perhaps.
            (None, false) => Err(why),
        })
    }

    async fn get(&self) -> Result<Arc<AwsCredential>, StoreError> {
        if self.expired.swap(false, Ordering::Relaxed) {
            // The crate keeps those that it has until they end by its clock.
            let service = service(&self.builder)?;
            self.state(|state| (state.service, state.last, state.away_until) = (service, None, None));
        }
        let (service, last, away_until) =
            self.state(|state| (state.service.clone(), state.last.clone(), state.away_until));
        let got = match last {
            Some(last) if away_until.is_some_and(|until| real::now() < until) => return Ok(last),
            Some(_) => timeout(RENEW_MAX, service.get_credential())
                .await
                .unwrap_or_else(|_| Err(passing("no answer"))),
            None => service.get_credential().await,
        };
        match got {
            Ok(new) => self.state(|state| {
                (state.last, state.has_given, state.away_until) = (Some(new.clone()), true, None);
                Ok(new)
            }),
            Err(why) => self.old(why),
        }
    }
}

fn service(builder: &AmazonS3Builder) -> Result<AwsCredentialProvider, StoreError> {
    Ok(builder.clone().build()?.credentials().clone())
}

fn passing(words: &str) -> StoreError {
    let words = format!("the service of the credentials does not give new ones: {words}");
    StoreError::Generic { store: "S3", source: Box::new(Judged(Refusal::Passing(words))) }
}

impl CredentialProvider for Kept {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(&'a self) -> BoxFuture<'b, Result<Arc<AwsCredential>, StoreError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.get())
    }
}
