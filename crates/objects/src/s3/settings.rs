//! The settings of the environment, checked before the crate uses them: it ends its thread at some that it
//! cannot use, and at others refuses a request without the setting's name.

use super::clients::{authority, is_address, is_base, is_here};
use super::{AmazonS3Builder, AmazonS3ConfigKey, ClientConfigKey};

/// The words of the environment on the way to a store.
#[derive(Debug)]
pub(super) struct Way {
    /// The address, and the variable with it; none: Amazon's.
    pub(super) endpoint: Option<(String, &'static str)>,
    /// Requests may go without encryption.
    pub(super) is_plain: bool,
    /// Credentials come from a service, and not from the variables.
    pub(super) has_service: bool,
}

/// Variables whose values are in each request, or in its address.
const PLAIN: [(AmazonS3ConfigKey, &str); 4] = [
    (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
    (AmazonS3ConfigKey::SecretAccessKey, "AWS_SECRET_ACCESS_KEY"),
    (AmazonS3ConfigKey::Token, "AWS_SESSION_TOKEN"),
    (AmazonS3ConfigKey::Region, "AWS_REGION"),
];

/// Addresses of services that give credentials.
const SERVICES: [(AmazonS3ConfigKey, &str); 3] = [
    (AmazonS3ConfigKey::ContainerCredentialsFullUri, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    (AmazonS3ConfigKey::MetadataEndpoint, "AWS_METADATA_ENDPOINT"),
    (AmazonS3ConfigKey::StsEndpoint, "AWS_ENDPOINT_URL_STS"),
];

/// Read the settings.
///
/// # Errors
/// In words: the variable, and the remedy.
pub(super) fn read(builder: &AmazonS3Builder) -> Result<Way, String> {
    let of = |key| builder.get_config_value(&key);
    for (key, variable) in PLAIN {
        let is_wrong = |value: String| !value.bytes().all(|byte| byte.is_ascii_graphic());
        if of(key).is_some_and(is_wrong) {
            return Err(format!(
                "{variable} has a space, a line break or another character that no such value has: set it anew, or \
                 unset it"
            ));
        }
    }
    if of(AmazonS3ConfigKey::Region).is_some_and(|region| region.is_empty()) {
        return Err(
            "AWS_REGION, or AWS_DEFAULT_REGION, is empty: unset it, or set it to the region of the bucket"
                .into(),
        );
    }
    let has_keys = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::SecretAccessKey];
    let has_service = has_keys.into_iter().all(|key| of(key).is_none());
    for (key, variable) in SERVICES.into_iter().filter(|_| has_service) {
        let Some(address) = of(key) else { continue };
        // To the others the crate adds a path, or a query.
        let is_whole = key == AmazonS3ConfigKey::ContainerCredentialsFullUri;
        let is_right = if is_whole { is_address(&address) } else { is_base(&address) };
        address_of(&address, variable, is_right, SERVICE_FORM)?;
    }
    let endpoint = match of(AmazonS3ConfigKey::S3Endpoint) {
        Some(at) => Some((at, "AWS_ENDPOINT_URL_S3")),
        None => of(AmazonS3ConfigKey::Endpoint).map(|at| (at, "AWS_ENDPOINT_URL")),
    };
    if let Some((address, variable)) = &endpoint {
        if !authority(address).0.is_empty() {
            return Err(format!(
                "{variable} has a user before `@`: remove it, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ));
        }
        address_of(address, variable, is_base(address), FORM)?;
    }
    let allowed = of(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let allowed = allowed.is_some_and(|text| text == "true");
    let is_plain = may_be_plain(endpoint.as_ref().map(|(at, _)| at.as_str()), allowed)?;
    Ok(Way { endpoint, is_plain, has_service })
}

/// Refuse an address that is none.
fn address_of(address: &str, variable: &str, is_right: bool, form: &str) -> Result<(), String> {
    if address.is_empty() {
        return Err(format!(
            "{variable} is empty: unset it, or set it to an address such as https://HOST:PORT"
        ));
    }
    match is_right {
        true => Ok(()),
        // A password may be in it.
        false if address.contains(['@', '?']) => Err(format!("{variable} is no such address: {form}")),
        false => Err(format!("{variable} is `{}`, which is no such address: {form}", address.escape_debug())),
    }
}

const SERVICE_FORM: &str =
    "set it to the address of the service that gives credentials, such as http://HOST:PORT/PATH, or unset it";
const FORM: &str = "set it to https://HOST:PORT, or to http://HOST:PORT for a store without encryption";

/// Whether requests may go without encryption to an address: to this machine, or by the user's word.
pub(super) fn may_be_plain(endpoint: Option<&str>, allowed: bool) -> Result<bool, String> {
    let Some(address) = endpoint else { return Ok(false) };
    if !address.to_ascii_lowercase().starts_with("http://") {
        return Ok(false);
    }
    if is_here(authority(address).1) || allowed {
        return Ok(true);
    }
    Err(format!(
        "{address} is reached without encryption: others on the way could read and change the files; use https, or \
         set AWS_ALLOW_HTTP=true"
    ))
}
