//! The far end of `fullpipe measure ssh:HOST`: a server of measurements for the one client that has started it over ssh.

use std::fs::File;
use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_net::serve::{PendingClient, Serve};
use fullpipe_net::serve_measurement::{Gatekeeper, MeasurementPolicy};
use fullpipe_net::wire::{ProofKey, Request, is_proof};
use fullpipe_net::{Denial, MeasurementId, NetError, ServeOptions, Server};
use fullpipe_path::{Rate, Time};
use rand::RngExt;

use crate::connection::join;
use crate::error::TransferError;
use crate::protocol::frame;
use crate::protocol::message::Message;
use crate::threads::thread;

/// Measurements at once: a client takes up to two, one in either direction, and may be slow to end an earlier one.
const MAX_CLIENTS: usize = 8;
/// Time without progress after which a run has failed. The client's own limit may be shorter.
const STALL: Duration = Duration::from_secs(3600);

/// Lets in whoever holds the key, which only ssh has carried.
struct KeyHolder(ProofKey);

impl Gatekeeper for KeyHolder {
    fn prove(&self, nonce: &[u8; 32], mac: &[u8; 32]) -> Result<(), Denial> {
        match is_proof(&self.0, nonce, mac) {
            true => Ok(()),
            false => Err(Denial::new(
                "it serves only the client that has started it over ssh",
                "measure to ssh:HOST to have a server of your own there",
            )),
        }
    }

    fn let_in(&self, _: Option<MeasurementId>) -> Result<(), Denial> {
        Ok(())
    }

    fn begins(&self, _: &Request) {}
}

/// Serves measurements on a port of `at`, one of `ports` unless they are zeros, until `input` ends. Data streams come to others
/// of these ports. `check` checks this host for a path, and says in JSON what it has found.
///
/// # Errors
/// No port is free, or the client is gone before it was told the port.
pub fn serve(
    input: OwnedFd,
    output: OwnedFd,
    (at, ports): (SocketAddr, (u16, u16)),
    check: &dyn Fn(Time, Rate) -> String,
) -> Result<(), TransferError> {
    let key: [u8; 32] = rand::rng().random();
    let server = listen(at, ports)?;
    let address = server.address().map_err(|source| NetError::Listen { address: at.to_string(), source })?;
    let lost = |source| TransferError::Lost { peer: "the client".into(), doing: "greeting", source };
    let mut output = File::from(output);
    frame::send(&mut output, &Message::Hello(join::hello())).map_err(lost)?;
    frame::send(&mut output, &Message::Measures { port: address.port(), key }).map_err(lost)?;
    let policy =
        MeasurementPolicy { data_ports: ports, stall: STALL, check_memory: true, max_run: None, wants_proof: true };
    let serve: Serve =
        Arc::new(move |stream: TcpStream, peer: &str, _: &PendingClient, measures: bool| match measures {
            true => fullpipe_net::serve_measurement::measure(stream, peer, &policy, &KeyHolder(ProofKey(key))),
            false => Err(NetError::Other("it serves measurements alone".to_owned())),
        });
    thread("server", move || {
        // Whoever asks learns how it ended; there is no log.
        let _ = server.run(&serve, |_| ());
    })?;
    let mut input = BufReader::new(File::from(input));
    // It ends with the client's end of ssh.
    while let Ok(asked) = frame::receive(&mut input) {
        let answer = match asked {
            Message::Ping { n } => Message::Pong { n },
            Message::Check { rtt_ns, rate_bps } => Message::Checked(check(Time(rtt_ns), Rate(rate_bps))),
            _ => break,
        };
        frame::send(&mut output, &answer).map_err(lost)?;
    }
    Ok(())
}

/// Listens on the first port that is free.
fn listen(mut at: SocketAddr, (first, last): (u16, u16)) -> Result<Server, NetError> {
    let mut failed = None;
    for port in first..=last {
        at.set_port(port);
        match Server::bind(ServeOptions { bind: at, max_clients: MAX_CLIENTS, once: false }) {
            Ok(server) => return Ok(server),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| NetError::Other("there is no port to listen on".to_owned())))
}
