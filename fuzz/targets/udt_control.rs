//! Control packets of UDT: what is read is within its bounds, and ACKs come back as they were written.
#![no_main]

use fullpipe_fuzz::{mutant_of_bytes, replay};
use fullpipe_udt::control::Control;
use fullpipe_udt::handshake::Handshake;
use fullpipe_udt::packet::{ControlHeader, Packet, parse};
use fullpipe_udt::seq::SEQ_MASK;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| replay(data, mutant_of_bytes, run));

fn run(data: &[u8]) {
    let Some(packet) = parse(data) else { return assert!(data.len() < 16) };
    let (header, body) = match packet {
        Packet::Data(header, payload) => {
            assert!(header.seq <= SEQ_MASK && payload.len() + 16 == data.len());
            return;
        }
        Packet::Control(header, body) => (header, body),
    };
    let mut head = [0; 16];
    header.write(&mut head);
    assert!(head[..2] == data[..2] && head[4..] == data[4..16]);
    match Control::parse(&header, body) {
        Some(Control::Ack(ack)) => {
            assert!(ack.data_seq <= SEQ_MASK && ack.ack_seq <= SEQ_MASK);
            let mut again = Vec::new();
            ack.append(&mut again);
            let header = ControlHeader { info: ack.ack_seq, ..header };
            assert_eq!(Control::parse(&header, &again), Some(Control::Ack(ack)));
        }
        Some(Control::LightAck(seq) | Control::Ack2(seq)) => assert!(seq <= SEQ_MASK),
        Some(Control::Nak(report)) => {
            let ranges = report.ranges().inspect(|(first, last)| assert!(first.max(last) <= &SEQ_MASK));
            assert!(ranges.count() <= body.len() / 4);
        }
        Some(Control::Handshake(handshake)) => {
            let again = handshake.datagram(header.socket_id, header.timestamp_us);
            assert_eq!(Handshake::from_datagram(&again), Some((handshake, header.socket_id)));
        }
        _ => {}
    }
}
