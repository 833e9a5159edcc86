//! The profile that comes with the program, and questions to a profile as the command line puts them.

use std::borrow::Cow;
use std::path::Path as FilePath;

use fullpipe_path::{Probability, Protocol, Rate, Size, Time};
use fullpipe_profile::{Profile, Query, select};

use crate::failure::{Failure, Result};

/// The profile that comes with the program: measured in the testbed (`docs/explanation/selection.md`).
const SHIPPED: &str = include_str!("../shipped.json");
/// What errors call it, in place of a file's name.
const SHIPPED_NAME: &str = "the shipped profile";

/// Reads the text of a profile, and what errors call it: of `file`, or of the shipped profile without one.
///
/// # Errors
/// The file cannot be read.
pub fn text_of(file: Option<&FilePath>) -> Result<(Cow<'static, str>, &FilePath)> {
    Ok(match file {
        Some(file) => (Cow::Owned(fullpipe_profile::read_text(file)?), file),
        None => (Cow::Borrowed(SHIPPED), FilePath::new(SHIPPED_NAME)),
    })
}

/// Adds what is known of the path to a query: capacity, random loss, and the queue of the bottleneck.
///
/// # Errors
/// There is a queue and no capacity: a queue is deep or shallow only in relation to the capacity.
pub fn describe(query: &mut Query, rate: Option<Rate>, loss: Option<Probability>, queue: Option<Size>) -> Result {
    query.rate = rate.or(query.rate);
    query.loss = loss.map(Probability::get).or(query.loss);
    if let Some(queue) = queue {
        let Some(rate) = query.rate else {
            return Err(Failure::usage("--queue needs the capacity of the path too; add --rate"));
        };
        let bdp = rate.0 as f64 * query.rtt_ms / 8e3;
        query.queue = Some((queue.0, queue.0 as f64 / bdp.max(1.0)));
    }
    Ok(())
}

/// Ranks TCP's congestion controls in the shipped profile, the fastest first. Beside each stands the rate, bit/s, that the
/// best transport using it is expected to reach. The list is empty for a path that the profile does not cover.
pub fn shipped_ranking(rtt: Time, rate: Rate) -> Vec<(String, f64)> {
    let query = Query { rate: Some(rate), ..Query::from(rtt) };
    let shipped = Profile::parse(SHIPPED, FilePath::new(SHIPPED_NAME));
    let Ok(selection) = shipped.and_then(|profile| select(&profile, &query)) else { return Vec::new() };
    let mut best: Vec<(String, f64)> = Vec::new();
    let tcp = selection.ranking.into_iter().filter(|choice| choice.transport.protocol() == Protocol::Tcp);
    for choice in tcp {
        if !best.iter().any(|(cc, _)| *cc == choice.transport.cc) {
            best.push((choice.transport.cc, choice.expected.mean_bps));
        }
    }
    best
}
