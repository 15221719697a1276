//! Errors of the crate, and the answers of stores in them, as refusals.
//!
//! The crate has the number of an answer, and the body, in words only. A key stands in these words too, and
//! in the body: so a number is read at the beginning of the error that says the answer, and a code in
//! `<Code>`.

use super::StoreError;
use crate::store::Refusal;
use std::error::Error;
use std::fmt;

/// Words of a store in an error, at most.
pub(super) const WORDS_MAX: usize = 400;

/// The first words of an error.
pub(super) fn short(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    let mut end = text.len().min(WORDS_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\n', " ")
}

/// The remedy for an answer that names another place.
const ELSEWHERE: &str =
    "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL to the address of its store";

/// Codes of credentials that have ended.
pub(super) const EXPIRED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"];

/// An error of our own parts of the crate's way to a store: it is this refusal.
#[derive(Debug)]
pub(super) struct Judged(pub(super) Refusal);

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Refusal::Passing(words) | Refusal::Other(words) => f.write_str(words),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Error for Judged {}

/// The code in the body of an answer.
pub(super) fn code_in(body: &str) -> Option<String> {
    let (_, rest) = body.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code.to_owned())
}

/// An answer of a store, as the crate has it in an error: its number, and the body's code (`NoSuchBucket`).
struct Answered {
    status: u16,
    code: Option<String>,
}

/// An error, and those that it comes from.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Their words. The key stands in some of them: so only the beginnings of these texts, which are the crate's,
/// are looked at.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = String> + 'a {
    causes(error).map(ToString::to_string)
}

/// The number that an answer with this code has, if it is not 200.
fn number_of(code: &str) -> Option<u16> {
    Some(match code {
        "AccessDenied"
        | "AllAccessDisabled"
        | "AccountProblem"
        | "InvalidAccessKeyId"
        | "InvalidToken"
        | "SignatureDoesNotMatch"
        | "InvalidObjectState" => 403,
        "OperationAborted" => 409,
        "TooManyRequests" => 429,
        "InternalError" => 500,
        "NotImplemented" => 501,
        "ServiceUnavailable" | "SlowDown" | "SlowDownRead" | "SlowDownWrite" | "RequestTimeout" => 503,
        _ => return None,
    })
}

/// The refusal of an error in an answer of 200, which has this code.
pub(super) fn with_code(code: &str) -> Refusal {
    let words = format!("the store answers with the error `{}`", short(&code.escape_debug()));
    let by_number = || number_of(code).and_then(|number| with_number(number, code, &words));
    of_code(code, &words).or_else(by_number).unwrap_or(Refusal::Other(words))
}

/// The refusal that a code alone says.
fn of_code(code: &str, words: &str) -> Option<Refusal> {
    Some(match code {
        "NoSuchBucket" => Refusal::NoBucket,
        "RequestTimeTooSkewed" => Refusal::Other(format!(
            "{words}; the clock of this machine differs from the store's by more than that allows: set it (NTP)"
        )),
        _ if EXPIRED.contains(&code) => Refusal::Denied(format!(
            "{words}; AWS_SESSION_TOKEN, or the token of a web identity, has expired: set that of a new session"
        )),
        _ => return None,
    })
}

/// The refusal that the number of an answer says, with its code.
fn with_number(number: u16, code: &str, words: &str) -> Option<Refusal> {
    let words = words.to_owned();
    Some(match number {
        // The bytes of the request came too slowly, or not all.
        400 if code == "RequestTimeout" => Refusal::Passing(words),
        401 | 403 => Refusal::Denied(words),
        501 => Refusal::NotOffered(words),
        408 | 409 | 429 | 500.. => Refusal::Passing(words),
        300..=399 => Refusal::Other(format!("{words}; {ELSEWHERE}")),
        _ => return None,
    })
}

fn answered(error: &(dyn Error + 'static)) -> Option<Answered> {
    chain(error).find_map(|text| {
        let rest = text.strip_prefix("Server returned non-2xx status code: ")?;
        Some(Answered { status: rest.get(..3)?.parse().ok()?, code: code_in(rest) })
    })
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        use StoreError as Error;
        if let Some(Judged(refusal)) = causes(&error).find_map(|cause| cause.downcast_ref()) {
            return refusal.clone();
        }
        let words = short(&error);
        let answer = answered(&error);
        let status = answer.as_ref().map(|answer| answer.status);
        let code = answer.and_then(|answer| answer.code).unwrap_or_default();
        let begins = |words: &str| chain(&error).any(|text| text.starts_with(words));
        // It looked for credentials of a virtual machine, as the variables have none.
        let is_for_credentials = |text: String| {
            let request = text.strip_prefix("Error performing ").and_then(|rest| rest.split_once(' '));
            request.is_some_and(|(_, rest)| rest.starts_with("http://169.254.169.254/latest/"))
        };
        if let Some(refusal) = of_code(&code, &words) {
            return refusal;
        }
        match error {
            Error::NotFound { .. } => Refusal::Absent,
            // Another request for the key is under way: nothing is said of the condition.
            Error::AlreadyExists { .. } | Error::Precondition { .. }
                if status == Some(409) && !code.ends_with("Exists") =>
            {
                Refusal::Passing(words)
            }
            Error::AlreadyExists { .. } | Error::Precondition { .. } => Refusal::Condition,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Refusal::Denied(words),
            Error::NotImplemented { .. } | Error::NotSupported { .. } => Refusal::NotOffered(words),
            Error::InvalidPath { source } => Refusal::Other(format!(
                "a key of another program cannot be read: {}; remove that object from the prefix",
                short(&source)
            )),
            Error::Generic { .. } if chain(&error).any(is_for_credentials) => {
                Refusal::Denied("no credentials are set".to_owned())
            }
            Error::Generic { .. } => match status {
                // Others are none of S3's.
                Some(number) => with_number(number, &code, &words).unwrap_or(Refusal::Other(words)),
                None if begins("Received redirect") => Refusal::Other(format!("{words}; {ELSEWHERE}")),
                // The answer did not arrive.
                None if begins("HTTP error: ") => Refusal::Passing(words),
                None => Refusal::Other(words),
            },
            _ => Refusal::Other(words),
        }
    }
}
