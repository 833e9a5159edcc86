//! Access to a server with tokens: the checks of its clients' tokens, and what its operator has to know of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use fullpipe_transfer::TransferError;
use fullpipe_transfer::connection::token_proof::{self, AcceptedProofs};
use fullpipe_transfer::connection::token_store::Tokens;
use serde_json::json;

use super::log::{Notice, Told, say};
use crate::failure::Result;
use crate::format;
use crate::format::now;
use crate::output::outln;

/// The tokens of a server, and the folder that they open.
#[derive(Clone)]
pub struct TokenAccess {
    /// The folder that the server serves.
    pub root: PathBuf,
    /// The tokens that open it.
    pub tokens: Arc<Tokens>,
    told: Told,
    /// Warnings that the operator has been given and that still hold. Locked only while they are compared.
    known: Arc<Mutex<BTreeSet<String>>>,
}

impl TokenAccess {
    /// Access to this folder, with these tokens.
    pub fn new(root: PathBuf, tokens: Tokens, told: Told) -> TokenAccess {
        TokenAccess { root, tokens: Arc::new(tokens), told, known: Arc::default() }
    }

    /// Reads the tokens again if their files have changed.
    pub fn refresh(&self) {
        if let Some(read) = self.tokens.refresh() {
            self.tell(read);
        }
    }

    /// Reads the tokens again, as SIGHUP asks for.
    pub fn reload(&self) {
        self.tell(self.tokens.reload());
    }

    /// Logs how reading the tokens went, and the warnings that are new.
    fn tell(&self, read: Result<usize, TransferError>) {
        let error = read.as_ref().err().map(ToString::to_string);
        match (read, &error) {
            _ if self.told.json => {
                let n = self.tokens.grants().len();
                outln!("{}", json!({"kind": "tokens", "time": now(), "tokens": n, "error": error}));
            }
            (_, Some(error)) => say("tokens", None, format_args!("{error}; those read before stay in force")),
            (Ok(n), _) if !self.told.quiet => {
                say("tokens", None, format_args!("read again, {}", format::count(n as u64, "token", "tokens")));
            }
            _ => {}
        }
        self.warnings().iter().for_each(|warning| self.told.say(warning));
    }

    /// The check of a caller's first bytes, which prove that it holds a token.
    pub fn check(self) -> fullpipe_net::preface::Check {
        let seen = Mutex::new(AcceptedProofs::default());
        Arc::new(move |preface| {
            self.refresh();
            let now = SystemTime::now();
            let now_s = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let is_proof = || self.tokens.prove(now, |key| token_proof::proves(preface, key)).is_ok();
            seen.lock().unwrap_or_else(PoisonError::into_inner).accept(preface, is_proof, now_s)
        })
    }

    /// New warnings for the operator: of files that others may read, and of tokens that open nothing here.
    pub fn warnings(&self) -> Vec<Notice> {
        let exposed = self.tokens.exposed().into_iter().map(|exposed| exposed.to_string());
        let root = self.root.display();
        let useless = self.tokens.grants().into_iter().filter_map(|grant| {
            let (name, folder) = (grant.name, grant.folder?);
            let shown = folder.display();
            if !folder.starts_with(&self.root) {
                return Some(format!(
                    "token {name} is for {shown}, which is not below {root}: its holder can measure, but not copy. Make \
                     another for a folder below {root}, or serve {shown} or a folder above it"
                ));
            }
            let missing = !folder.is_dir();
            missing.then(|| format!("token {name} is for {shown}, which does not exist: its holder cannot copy"))
        });
        let now: BTreeSet<String> = exposed.chain(useless).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = now.difference(&known).cloned().map(Notice::Warning).collect();
        *known = now;
        new
    }
}
