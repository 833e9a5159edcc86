//! What changes on an emulated path while programs use it.

use serde::Deserialize;

use crate::path::LabPath;
use crate::path_error::PathError;
use crate::units::{Probability, Rate, Size, Time};

/// New values for keys of a path. What is not given stays as it was, the queue's size too.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// Virtual time of the change.
    pub at: Time,
    rtt: Option<Time>,
    rate: Option<Rate>,
    queue: Option<Size>,
    loss: Option<Probability>,
    loss_back: Option<Probability>,
    jitter: Option<Time>,
    reorder: Option<Probability>,
    duplicate: Option<Probability>,
    corrupt: Option<Probability>,
}

impl PathChange {
    /// Returns a path as it is after the change.
    ///
    /// # Errors
    /// No path can be like that.
    pub fn apply(&self, path: &LabPath) -> Result<LabPath, PathError> {
        let changed = LabPath {
            rtt: self.rtt.unwrap_or(path.rtt),
            rate: self.rate.unwrap_or(path.rate),
            queue: self.queue.unwrap_or(path.queue),
            loss: self.loss.unwrap_or(path.loss),
            loss_back: self.loss_back.unwrap_or(path.loss_back),
            jitter: self.jitter.or(path.jitter).filter(|jitter| jitter.0 > 0),
            reorder: self.reorder.unwrap_or(path.reorder),
            duplicate: self.duplicate.unwrap_or(path.duplicate),
            corrupt: self.corrupt.unwrap_or(path.corrupt),
            ..path.clone()
        };
        changed.checked()
    }
}
