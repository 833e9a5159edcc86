//! Joins what the engine wrote in the guest with what the testbed saw of the path.

use std::collections::BTreeMap;

use fullpipe_path::record::Outcome;
use serde_json::{Value, json};

use crate::job::Report;

/// Makes the final record: queue samples among the others by time, the queue's totals in the result,
/// and under `real` the host's facts instead of the guest's.
///
/// # Errors
/// What the guest wrote is not a record; the text says why.
pub(crate) fn merge(text: &str, report: &Report, real: &BTreeMap<String, Value>) -> Result<(String, Outcome), String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let bad = |what: &str| format!("the engine's record lacks its {what}");
    let last = lines.pop().ok_or_else(|| bad("result"))?;
    let mut samples = lines.into_iter();
    let head = samples.next().ok_or_else(|| bad("header"))?;
    let mut head: Value = serde_json::from_str(head).map_err(|e| e.to_string())?;
    let mut outcome: Outcome = serde_json::from_str(last).map_err(|e| e.to_string())?;
    let zero_ns = head["real"]["zero_ns"].as_u64().ok_or_else(|| bad("zero"))?;
    head["real"] = real.iter().filter(|(k, _)| matches!(k.as_str(), "host" | "ended_unix_s")).map(pair).collect();
    outcome.queue_drops = Some(u64::from(report.forward.drops));
    outcome.queue_deepest = Some(u64::from(report.deepest));
    outcome.random_losses = Some(u64::from(report.impaired.drops));
    outcome.real = real.iter().filter(|(k, _)| !matches!(k.as_str(), "host" | "ended_unix_s")).map(pair).collect();

    let mut queue = report
        .queue
        .iter()
        .filter_map(|q| Some((q.ns.checked_sub(zero_ns)? as f64 / 1e9, q)))
        .map(|(t, q)| (t, json!({"kind": "queue", "t": t, "backlog_bytes": q.backlog_bytes, "drops": q.drops})))
        .peekable();
    let mut merged = String::with_capacity(text.len() + report.queue.len() * 80);
    let mut add = |line: &str| {
        merged.push_str(line);
        merged.push('\n');
    };
    add(&head.to_string());
    for sample in samples {
        let t = time(sample).ok_or_else(|| format!("a sample without its time: {sample}"))?;
        while let Some((_, line)) = queue.next_if(|(at, _)| *at < t) {
            add(&line.to_string());
        }
        add(sample);
    }
    for (_, line) in queue {
        add(&line.to_string());
    }
    add(&serde_json::to_string(&outcome).map_err(|e| e.to_string())?);
    Ok((merged, outcome))
}

fn pair((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// The `t` of a line. Those of a kind start alike, so there is no need to parse it all.
fn time(line: &str) -> Option<f64> {
    let rest = ["sample", "sobas"]
        .iter()
        .find_map(|kind| line.strip_prefix(r#"{"kind":""#)?.strip_prefix(kind)?.strip_prefix(r#"","t":"#))?;
    rest.split(',').next()?.parse().ok()
}
