//! A client for one command.

use crate::address::Place;
use anyhow::{Context as _, Result};
use shoal_client::{Client, Options};
use shoal_env::Env;
use std::time::Duration;

/// How long a server may take that may be down.
pub const IMPATIENT: Duration = Duration::from_secs(5);

/// The options of a client of this place.
pub fn options(place: &Place) -> Result<Options> {
    let (key, file_system) = place.open_key()?;
    let servers = place.address.servers.clone();
    Ok(Options::new(servers, key.secret()?, file_system.fs_id()?, file_system.collection()))
}

/// Run a command's work with a client of its place, on this thread.
pub fn with_client<T, F>(place: &Place, work: impl FnOnce(Env, Client) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    with_options(place, options(place)?, work)
}

/// The same, with another time limit of each operation than the client's own.
pub fn with_client_within<T, F>(
    place: &Place,
    patience: Duration,
    work: impl FnOnce(Env, Client) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    with_options(place, Options { timeout: patience, ..options(place)? }, work)
}

fn with_options<T, F>(place: &Place, options: Options, work: impl FnOnce(Env, Client) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    shoal_env::real::run("shoal", |env| async move {
        let client = client(env.clone(), place, options).await?;
        let done = work(env, client.clone()).await;
        client.close().await;
        done
    })
}

/// A client of a place.
pub async fn client(env: Env, place: &Place, options: Options) -> Result<Client> {
    let words = || format!("cannot reach {}; is it served (`shoal up`, `shoal serve`)?", place.address);
    Client::connect(env, options).await.with_context(words)
}
