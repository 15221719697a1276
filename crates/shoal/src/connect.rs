//! A client for one command.

use crate::address::CommandTarget;
use anyhow::{Context as _, Result};
use shoal_client::{Client, Options};
use shoal_env::Env;
use shoal_proto::Status;
use std::time::Duration;

/// How long a server may take that may be down.
pub const IMPATIENT: Duration = Duration::from_secs(5);

/// The options of a client of this place.
pub fn options(place: &CommandTarget) -> Result<Options> {
    let (key, file_system) = place.open_key()?;
    let servers = place.address.servers.clone();
    let options = Options::new(servers, key.secret()?, file_system.fs_id()?, file_system.collection());
    Ok(Options { key_id: key.id()?, read_only: key.read_only, ..options })
}

/// The options of a client that manages: it proves itself by the admin key, if one is beside the mount key.
/// Over the network its connections are sealed, unless the cluster file beside the key says otherwise.
pub fn admin_options(place: &CommandTarget) -> Result<Options> {
    let (admin, admin_unsealed) = (place.admin_key()?, place.has_no_seals());
    Ok(Options { admin, admin_unsealed, ..options(place)? })
}

/// Run a command's work with a client that manages.
pub fn with_admin_within<T, F>(
    place: &CommandTarget,
    patience: Duration,
    work: impl FnOnce(Env, Client) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let options = Options { timeout: patience, ..admin_options(place)? };
    let has_key = options.admin.is_some();
    with_options(place, options, work).map_err(|error| match error.downcast_ref::<shoal_client::Error>() {
        Some(refused) if refused.status == Status::Forbidden && !has_key => {
            error.context(needs_admin_key(place))
        }
        _ => error,
    })
}

/// The remedy where a mount key was refused what only administrators may do.
pub fn needs_admin_key(place: &CommandTarget) -> String {
    format!(
        "this needs the administrators' key: copy `key.admin` beside {} (mode 0600), from the folder in which the file system was made",
        place.key.display()
    )
}

/// Run a command's work with a client of its place, on this thread.
pub fn with_client<T, F>(place: &CommandTarget, work: impl FnOnce(Env, Client) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    with_options(place, options(place)?, work)
}

/// The same, with another time limit of each operation than the client's own.
pub fn with_client_within<T, F>(
    place: &CommandTarget,
    patience: Duration,
    work: impl FnOnce(Env, Client) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    with_options(place, Options { timeout: patience, ..options(place)? }, work)
}

fn with_options<T, F>(
    place: &CommandTarget,
    options: Options,
    work: impl FnOnce(Env, Client) -> F,
) -> Result<T>
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
pub async fn client(env: Env, place: &CommandTarget, options: Options) -> Result<Client> {
    let words = || format!("cannot reach {}; is it served (`shoal up`, `shoal serve`)?", place.address);
    Client::connect(env, options).await.with_context(words)
}
