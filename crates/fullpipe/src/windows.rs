//! How much the kernels let one stream have in flight, and how many streams a rate takes then.

use fullpipe_path::transport::MAX_STREAMS;
use fullpipe_path::{Buffer, Size, Transport};
use fullpipe_transfer::protocol::hello::Limits;

/// The part of a receive buffer's limit that its window reaches; the rest is for the kernel's bookkeeping
/// (`TCP_DEFAULT_SCALING_RATIO`, include/net/tcp.h).
const RECEIVE_SHARE: f64 = 0.5;
/// The part of a send buffer's limit that is data in flight, as measured in the testbed (Linux 6.12, packets of 9,000 bytes).
const SEND_SHARE: f64 = 0.65;
/// Streams are opened for this multiple of the rate: slow start is shorter over many, and not all end at once.
const MARGIN: f64 = 1.5;
/// Smallest limit, bytes, below which a kernel has told nothing.
const MIN_LIMIT: u64 = 4_000;

/// The most bytes that a stream with autotuned buffers has in flight; `None` if a kernel has not told its limits.
pub fn autotuned(sender: &Limits, receiver: &Limits) -> Option<f64> {
    let told = sender.tuned_send.min(receiver.tuned_receive) >= MIN_LIMIT;
    told.then(|| (sender.tuned_send as f64 * SEND_SHARE).min(receiver.tuned_receive as f64 * RECEIVE_SHARE))
}

/// Most that a socket asks for, bytes: the largest buffer of the shipped profile.
const MAX_BUFFER: u64 = 1_000_000_000;

/// Autotuning is preferred where it goes further than what sockets may ask for by more than this factor. A buffer that is asked for
/// opens the window at once (`tcp_select_initial_window`), but autotuning begins with 64 KB and about triples them each round trip.
const AUTOTUNED_FURTHER: f64 = 2.0;

/// The buffer for a stream, and how much it may have in flight with it, bytes: what sockets may ask for, or the kernels' autotuning
/// if it goes much further. `None` if a kernel has not told its limits.
pub fn granted(sender: &Limits, receiver: &Limits) -> Option<(Buffer, f64)> {
    let tuned = autotuned(sender, receiver)?;
    // A kernel adds to what a socket asks for as much as its bookkeeping takes.
    let asked = sender.send.min(receiver.receive).min(MAX_BUFFER);
    Some(if asked as f64 > tuned / AUTOTUNED_FURTHER {
        (Buffer::Bytes(Size(asked)), asked as f64)
    } else {
        (Buffer::Auto, tuned)
    })
}

/// The number of streams that carry a rate, with so many bytes of each in flight in a round trip.
pub fn streams_for(bps: f64, rtt_s: f64, window: f64) -> u16 {
    (MARGIN * bps * rtt_s / 8.0 / window).ceil().clamp(1.0, f64::from(MAX_STREAMS)) as u16
}

/// The rate to which windows hold so many streams, bit/s.
pub fn rate(streams: u16, rtt_s: f64, window: f64) -> f64 {
    f64::from(streams) * window * 8.0 / rtt_s
}

/// Rates within this fraction are equal for streams that their windows limit.
const EQUAL: f64 = 0.05;

/// Of a transport with its rate, bit/s, between hosts that limit no window: the transport and its rate between hosts that let each
/// stream have so many bytes in flight with this buffer. It has as many streams as the rate takes then, at most `most`, unless it
/// has more by itself.
pub fn held(
    (transport, bps): (&Transport, f64),
    (buffer, window): (Buffer, f64),
    rtt_s: f64,
    most: u16,
) -> (Transport, f64) {
    let streams = transport.streams.max(streams_for(bps, rtt_s, window).min(most));
    (Transport { streams, buffer, ..transport.clone() }, bps.min(rate(streams, rtt_s, window)))
}

/// Of transports whose windows limit them, with their rates, bit/s, the one to take. Many streams differ little then, so that the
/// kernel's default goes first, then the fewest streams.
pub fn preferred(all: &[(Transport, f64)]) -> Option<&(Transport, f64)> {
    let most = all.iter().map(|(_, bps)| *bps).fold(0.0, f64::max);
    let equal = |(_, bps): &&(Transport, f64)| *bps >= (1.0 - EQUAL) * most;
    all.iter().filter(equal).min_by_key(|(transport, _)| (transport.cc != "cubic", transport.streams))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_kernel_takes_many_streams() {
        let stock = Limits { tuned_send: 4 << 20, tuned_receive: 6 << 20, ..Limits::default() };
        let window = autotuned(&stock, &stock).unwrap();
        assert!((window - 2.726e6).abs() < 1e3, "{window}");
        // 114.5 MB are in flight at 10 Gb/s and 91.6 ms.
        assert_eq!(streams_for(1e10, 0.0916, window), 63);
        assert!((rate(63, 0.0916, window) / 1.5e10 - 1.0).abs() < 0.02);
        assert_eq!(streams_for(1e10, 0.366, window), MAX_STREAMS);
        assert_eq!(streams_for(1e9, 0.001, window), 1);
        assert_eq!(autotuned(&stock, &Limits::default()), None);
        assert_eq!(granted(&stock, &stock), Some((Buffer::Auto, window)));
        let more = Limits { send: 16 << 20, receive: 16 << 20, ..stock.clone() };
        assert_eq!(granted(&more, &more), Some((Buffer::Bytes(Size(16 << 20)), f64::from(16 << 20))));
        let far = |asked| Limits {
            tuned_send: 2 << 30,
            tuned_receive: 2 << 30,
            send: asked,
            receive: asked,
            ..stock.clone()
        };
        let buffer = |asked| granted(&far(asked), &far(asked)).map(|(buffer, _)| buffer);
        assert_eq!(buffer(2 << 30), Some(Buffer::Bytes(Size(MAX_BUFFER))));
        assert_eq!(buffer(16 << 20), Some(Buffer::Auto));
    }
}
