//! Profiles and selections over HTTP, for path controllers (`--http`): read-only, and the same answers as `fullpipe select`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use blake3::Hash;
use fullpipe_profile::ProfileError;
use fullpipe_transfer::connection::token::{self, Exposed};

use super::alto::Alto;
use super::http::{Asked, Page, Problem};
use super::rate_limits::{Exceeded, PER_SECOND, PER_SECOND_FROM_ONE, RateLimits};
use crate::commands::select::{self, Unanswered};
use crate::failure::{Failure, Result};
use crate::shipped_profile::text_of;

/// Media type of answers.
const JSON: &str = "application/json";
/// Problem type of a right question about a path that no measured kind of path is near to, and the page that explains it.
/// RFC 9457, section 3.1.1, wants the full path of a relative URI, and that it can be fetched.
const NOTHING_FITS: &str = "/v1/problems/nothing-fits";
const NOTHING_FITS_TITLE: &str = "Nothing in the profile fits the path";
const NOTHING_FITS_TEXT: &str = "\
The question was understood, but the profile of this server has no measurements of a path like the one that was asked for.
\"asked\" is the property that no measured kind of path is near to, \"has\" what was measured. The same question gets an answer
once the server has a profile that covers the path.
";

/// What answers requests.
pub struct Api {
    /// File of the profile; none for the shipped one. It is read for each request, so that a new one counts at once.
    profile: Option<PathBuf>,
    /// Hash of the token that clients must give; none if they need none.
    token: Option<Hash>,
    /// The limits of requests. Locked only while one is counted.
    limits: Mutex<RateLimits>,
    /// The ALTO maps; none without `--alto`.
    alto: Option<Alto>,
}

impl Api {
    /// Answers from this profile, to clients with the token in this file, with ALTO maps of the paths in another file. Also returns
    /// how other users of this host can read or replace the token's file.
    ///
    /// # Errors
    /// The profile, the token or the paths cannot be read, or are none; another user may have written the token.
    pub fn new(profile: Option<&Path>, token_file: Option<&Path>, alto: Option<&Path>) -> Result<(Api, Vec<Exposed>)> {
        let (token, exposed) = token_file.map(read_token).transpose()?.unzip();
        let (text, name) = text_of(profile)?;
        fullpipe_profile::Profile::parse(&text, name)?;
        let alto = alto.map(|file| Alto::new(file, &text, name)).transpose()?;
        let limits = Mutex::new(RateLimits::new(Instant::now()));
        Ok((Api { profile: profile.map(Path::to_owned), token, limits, alto }, exposed.unwrap_or_default()))
    }

    /// Answers a request.
    ///
    /// # Errors
    /// It gets no page.
    pub fn answer(&self, asked: &Asked) -> std::result::Result<Page, Problem> {
        // Hashes take the same time to compare whatever is wrong.
        if self.token.is_some() && self.token != asked.bearer.as_ref().map(|token| blake3::hash(token.as_bytes())) {
            return Err(Problem::Unauthorized);
        }
        let admitted = self.limits.lock().unwrap_or_else(PoisonError::into_inner).admit(asked.from, Instant::now());
        admitted.map_err(|exceeded| Problem::TooMany(too_many(exceeded)))?;
        let internal = |failure: Failure| Problem::Internal(failure.to_string());
        let text = match asked.path.as_str() {
            "/v1/select" => {
                let (text, name) = text_of(self.profile.as_deref()).map_err(internal)?;
                select::answer(&text, name, &asked.query).map_err(problem)?
            }
            "/v1/profiles" => text_of(self.profile.as_deref()).map_err(internal)?.0.into_owned(),
            "/v1/openapi.json" => include_str!("openapi.json").to_owned(),
            NOTHING_FITS => return Ok(Page { media: "text/plain; charset=utf-8", text: NOTHING_FITS_TEXT.to_owned() }),
            path => {
                let alto = self.alto.as_ref().ok_or(Problem::Missing)?;
                let (text, name) = text_of(self.profile.as_deref()).map_err(internal)?;
                let page = alto.page(path, &text, name).map_err(|why| Problem::Internal(why.to_string()))?;
                return page.ok_or(Problem::Missing);
            }
        };
        Ok(Page { media: JSON, text })
    }
}

/// Which limit was exceeded, for people.
fn too_many(exceeded: Exceeded) -> String {
    let (most, whose) = match exceeded {
        Exceeded::One => (PER_SECOND_FROM_ONE, "of your address"),
        Exceeded::All => (PER_SECOND, "of all clients together"),
    };
    format!("there are more than {most} requests per second {whose}; ask again in a second")
}

/// The problem of a question without an answer.
fn problem(why: Unanswered) -> Problem {
    match why {
        Unanswered::Wrong(why) => Problem::Wrong(why.to_string()),
        Unanswered::Profile(why) => Problem::Internal(why.to_string()),
        Unanswered::Json(why) => Problem::Internal(why.to_string()),
        Unanswered::NothingFits { asked, has } => {
            let detail = ProfileError::NothingFits { asked: asked.clone(), has: has.clone() }.to_string();
            let more = vec![("asked", asked), ("has", has)];
            // The path with its query is what has no representation (RFC 9110, section 15.5.5).
            Problem::Typed { status: "404 Not Found", kind: NOTHING_FITS, title: NOTHING_FITS_TITLE, detail, more }
        }
    }
}

/// The hash of the token in a file, its first line, and how other users can read or replace the file.
fn read_token(file: &Path) -> Result<(Hash, Vec<Exposed>)> {
    let at = file.display();
    let (token, exposed) =
        token::read_first_line(file).map_err(|e| Failure::usage(format!("--http-token-file: {e}")))?;
    if token.len() < 16 {
        let why = format!(
            "--http-token-file {at}: its first line must have 16 characters or more; make one with: openssl rand -hex 24"
        );
        return Err(Failure::usage(why));
    }
    Ok((blake3::hash(token.as_bytes()), exposed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the description says is there, and nothing else is.
    #[test]
    fn the_description_is_of_what_is_there() {
        let paths =
            "[pid.a]\nprefixes = [\"::/0\"]\n[[path]]\nfrom = \"a\"\nto = \"a\"\nrtt = \"10ms\"\nrate = \"1gbit\"";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), paths).unwrap();
        let described: serde_json::Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let asked = |path: &str, query: &[(&str, &str)]| Asked {
            path: path.to_owned(),
            query: query.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            bearer: None,
            from: [192, 0, 2, 1].into(),
        };
        let api = Api::new(None, None, Some(file.path())).ok().unwrap().0;
        for path in described["paths"].as_object().unwrap().keys() {
            assert!(api.answer(&asked(path, &[("rtt", "10ms")])).is_ok(), "{path}");
        }
        let parameters = described["paths"]["/v1/select"]["get"]["parameters"].as_array().unwrap();
        let names: Vec<&str> = parameters.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, select::ASKED);
    }
}
