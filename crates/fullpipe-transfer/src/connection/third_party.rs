//! Finds out whether a far end can reach the port of another end.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fullpipe_net::socket;
use fullpipe_net::stream::open;
use fullpipe_net::{NetError, local_end};

use crate::connection::dial;
use crate::connection::far_port;
use crate::connection::stream::tcp_info;
use crate::error;
use crate::protocol::message::{Reach, Reached};

/// Tries to connect to the port of another end, as its client asks. `client` is the address from which ssh's client came.
///
/// # Errors
/// Why no address answers, for the client's user to read.
pub(crate) fn reach(reach: &Reach, sends: bool, stall: Duration, client: Option<IpAddr>) -> Result<Reached, String> {
    let patience = far_port::first_answer(stall, 0).min(Duration::from_nanos(reach.within_ns));
    let mut tried: Vec<SocketAddr> = Vec::new();
    let mut last = match reach.host {
        Some(_) => "its name is unknown there".to_owned(),
        None => "its address is unknown there".to_owned(),
    };
    let mut try_all = |addresses: Vec<SocketAddr>| {
        let mut new: Vec<_> = addresses.into_iter().map(|address| far_port::with_port(address, reach.port)).collect();
        new.retain(|address| {
            let is_new = !tried.contains(address);
            tried.extend(is_new.then_some(*address));
            is_new
        });
        let share = patience / u32::try_from(new.len()).unwrap_or(u32::MAX).max(1);
        new.iter().find_map(|to| match connect(*to, reach, sends, share) {
            Ok(reached) => Some(reached),
            Err(why) => {
                last = format!("{to}: {why}");
                None
            }
        })
    };
    let Some(host) = &reach.host else {
        // Behind NAT, this host knows the client by another address than the client itself.
        let from = client.map(|ip| SocketAddr::new(ip, 0));
        return try_all(from.into_iter().chain(reach.addresses.iter().copied()).collect()).ok_or(last);
    };
    let known = try_all(reach.addresses.clone());
    // In this network, the name may have other addresses.
    let found = known.or_else(|| try_all(dial::resolve(host, reach.port).unwrap_or_default()));
    found.ok_or(last)
}

fn connect(to: SocketAddr, reach: &Reach, sends: bool, patience: Duration) -> Result<Reached, String> {
    let began = Instant::now();
    let stream =
        open::connector(to, &local_end::ANY, &reach.transport, sends).connect(patience).map_err(
            |error| match error {
                NetError::Connect { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => {
                    "no answer".to_owned()
                }
                NetError::Connect { source, .. } => error::why(&source),
                NetError::NoUdp { .. } => "no answer over UDP".to_owned(),
                other => other.to_string(),
            },
        )?;
    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let measured =
        tcp_info(&*stream.handle()).and_then(|info| info.get("min_rtt")).filter(|us| *us < u64::from(u32::MAX));
    Ok(Reached { to, rtt_ns: measured.map_or(took, |us| us * 1000), mtu: socket::path_mtu(to) })
}
