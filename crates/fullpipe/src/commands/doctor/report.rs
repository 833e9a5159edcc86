//! What was found about one host: this one, or one that was checked over ssh.

use fullpipe_path::text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::finding::{Finding, State};
use super::host::Host;

/// What was found about a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Its name, as its kernel has it.
    pub host: Option<String>,
    /// Its kernel.
    pub kernel: Option<String>,
    /// The interfaces that were checked.
    pub interfaces: Vec<String>,
    /// The findings, the costliest first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// What was found about this host.
    pub fn new(host: &Host, findings: Vec<Finding>) -> Report {
        Report {
            host: host.sysctl("kernel.hostname").map(Into::into),
            kernel: host.sysctl("kernel.osrelease").map(Into::into),
            interfaces: host.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            findings,
        }
    }

    /// Reads what another host has found. All text is made fit for a terminal.
    ///
    /// # Errors
    /// It is no report.
    pub fn from_peer(found: &str) -> serde_json::Result<Report> {
        let mut value = serde_json::from_str(found)?;
        tame(&mut value);
        serde_json::from_value(value)
    }

    /// In JSON, for another host.
    pub fn to_json(&self) -> String {
        json!(self).to_string()
    }

    /// The host's name for a person.
    pub fn name(&self) -> &str {
        self.host.as_deref().unwrap_or("unknown")
    }

    /// The number of limits that cost something.
    pub fn costs(&self) -> usize {
        self.findings.iter().filter(|finding| finding.state == State::Costs).count()
    }
}

/// Takes from all text within a value what does not belong on a terminal.
fn tame(value: &mut Value) {
    match value {
        Value::String(words) => *words = text::from_peer(words),
        Value::Array(values) => values.iter_mut().for_each(tame),
        Value::Object(fields) => fields.values_mut().for_each(tame),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_host_says_is_fit_for_a_terminal() {
        let mut finding = Finding::costs("a\x1b[2J", "1\r2", "words\n\u{202e}more");
        finding.fix = vec!["sysctl\nrm".to_owned()];
        let report = Report {
            host: Some("h\x07".into()),
            kernel: None,
            interfaces: vec!["\u{9b}".into()],
            findings: vec![finding],
        };
        let read = Report::from_peer(&report.to_json()).unwrap();
        let finding = &read.findings[0];
        let said = [&finding.subject, &finding.words, &finding.fix[0], &read.interfaces[0]];
        for words in said.into_iter().chain(&finding.read).chain(&read.host) {
            assert!(!words.chars().any(text::is_unsafe), "{words:?}");
        }
        assert_eq!((read.costs(), read.findings.len()), (1, 1));
        assert!(Report::from_peer("{}").is_err() && Report::from_peer("").is_err());
    }
}
