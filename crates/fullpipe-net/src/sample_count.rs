//! How many samples a run takes, and how many are kept.

use fullpipe_path::Workload;
use fullpipe_path::transport::UNLIMITED;

use crate::error::NetError;
use crate::sample::MAX_SAMPLES;
use crate::wire::Request;

/// Returns how many samples one side takes of a run in this time, ns.
pub(crate) fn count(request: &Request, time_ns: u64) -> u64 {
    (time_ns / request.sample.0.max(1)).saturating_mul(request.transport.streams.into())
}

/// Checks that a run of a given time takes at most [`MAX_SAMPLES`]. Any other run ends when it has taken more.
///
/// # Errors
/// It takes more.
pub(crate) fn check_count(request: &Request) -> Result<(), NetError> {
    match request.workload {
        Workload::Duration(time) if time != UNLIMITED && count(request, time.0) > MAX_SAMPLES => {
            Err(NetError::TooManySamples { count: Some(count(request, time.0)), most: MAX_SAMPLES })
        }
        _ => Ok(()),
    }
}
