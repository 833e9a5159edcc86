//! Setting connections up and shutting them down while datagrams are lost, and with ends that have no right to a connection.

use fullpipe_udt::handshake::{HANDSHAKE_BYTES, Handshake, Kind, STREAM, VERSION};
use fullpipe_udt::{CallError, Caller, Config, Connection, End, Listener, Progress, Request, Transmit};

use crate::sim::{A, B, Link, MS, Pair, SECOND, address};

fn clean() -> Link {
    Link::new(None, 10 * MS, 0.0, 1)
}

/// A link that loses the datagrams whose numbers are given.
fn losing(numbers: &'static [usize]) -> Link {
    let mut link = clean();
    let mut n = 0;
    link.lose = Box::new(move |_| {
        n += 1;
        numbers.contains(&(n - 1))
    });
    link
}

#[test]
fn any_packet_of_the_handshake_may_be_lost() {
    let cases: [(&[usize], &[usize], u64); 5] =
        [(&[], &[], 40), (&[0], &[], 290), (&[], &[0], 290), (&[1], &[], 290), (&[0, 2, 4], &[1, 2], 1540)];
    for (lost_ab, lost_ba, at_most_ms) in cases {
        let mut pair = Pair::connect(Config::default(), Config::default(), losing(lost_ab), losing(lost_ba), 2);
        assert!(pair.connected_ns <= at_most_ms * MS, "{lost_ab:?} {lost_ba:?}: {} ms", pair.connected_ns / MS);
        pair.transfer(100_000, 10 * SECOND);
    }
}

#[test]
fn the_answer_is_repeated_by_the_connection_that_was_accepted() {
    // Two answers of the listener are lost; the request comes again when the connection has its own socket.
    let mut listener = Listener::new(Config::default(), 4, [1; 32]);
    let mut caller = Caller::new(0, Config::default(), address(B), [2; 16]);
    let first = caller.poll_transmit(0).unwrap();
    let Request::Answer(cookie) = listener.handle_datagram(0, address(A), &first) else { panic!() };
    assert!(matches!(caller.handle_datagram(0, &cookie), Progress::Waiting));
    let second = caller.poll_transmit(0).unwrap();
    let Request::Accepted(mut connection, lost) = listener.handle_datagram(0, address(A), &second) else { panic!() };
    let again = caller.poll_transmit(250 * MS).unwrap();
    assert_eq!(again, second);
    let Request::Answer(answer) = listener.handle_datagram(250 * MS, address(A), &again) else { panic!() };
    assert_eq!(answer, lost);
    connection.handle_datagrams(250 * MS, &again, again.len());
    let Some(Transmit::Control(repeated)) = connection.poll_transmit(250 * MS, 65_000) else { panic!() };
    assert!(matches!(caller.handle_datagram(250 * MS, repeated), Progress::Connected(_)));
}

#[test]
fn an_answer_is_no_request() {
    let mut listeners = [1, 2].map(|secret| Listener::new(Config::default(), 4, [secret; 32]));
    let mut answers = 0;
    for socket_id in [7, 0, 1 << 31] {
        let mut datagram = Handshake { socket_id, ..request() }.datagram(0, 0);
        // Whoever forged the address has each listener answer the other.
        for (n, from) in [A, B, A].into_iter().enumerate() {
            let Request::Answer(answer) = listeners[n % 2].handle_datagram(0, address(from), &datagram) else { break };
            (datagram, answers) = (answer, answers + 1);
        }
    }
    assert_eq!(answers, 1);
}

#[test]
fn a_caller_that_nobody_answers_gives_up_after_three_seconds() {
    let mut caller = Caller::new(0, Config::default(), address(B), [2; 16]);
    let (mut now, mut requests) = (0, 0);
    loop {
        requests += usize::from(caller.poll_transmit(now).is_some());
        now = caller.next_timeout();
        if let Progress::Failed(error) = caller.handle_timeout(now) {
            assert_eq!((error, now, requests), (CallError::TimedOut, 3 * SECOND, 12));
            return;
        }
    }
}

fn request() -> Handshake {
    Handshake {
        version: VERSION,
        socket_type: STREAM,
        isn: 5,
        mss: 1500,
        flow_window: 8192,
        kind: Kind::Regular,
        socket_id: 7,
        cookie: 0,
        peer_ip: [0; 4],
    }
}

/// The cookie that a listener gives to an address.
fn cookie(listener: &mut Listener, from: &str) -> u32 {
    let Request::Answer(answer) = listener.handle_datagram(0, address(from), &request().datagram(0, 0)) else {
        panic!()
    };
    assert_eq!(answer.len(), HANDSHAKE_BYTES);
    let (answer, to) = Handshake::from_datagram(&answer).unwrap();
    assert_eq!(to, 7);
    answer.cookie
}

#[test]
fn nobody_gets_a_connection_without_the_cookie_of_its_address() {
    let mut listener = Listener::new(Config::default(), 4, [1; 32]);
    let mine = cookie(&mut listener, A);
    let conclusion = Handshake { kind: Kind::Conclusion, ..request() };
    for (from, cookie) in [(A, 0), (A, mine ^ 1), (B, mine)] {
        let datagram = Handshake { cookie, ..conclusion }.datagram(0, 0);
        assert!(matches!(listener.handle_datagram(0, address(from), &datagram), Request::Ignored), "{from} {cookie}");
    }
    let datagram = Handshake { cookie: mine, ..conclusion }.datagram(0, 0);
    assert!(matches!(listener.handle_datagram(0, address(A), &datagram[..63]), Request::Ignored));
    let mut longer = datagram.to_vec();
    longer.push(0);
    assert!(matches!(listener.handle_datagram(0, address(A), &longer), Request::Ignored));
    assert!(matches!(listener.handle_datagram(0, address(A), &datagram), Request::Accepted(..)));
    // Two minutes later the cookie is worth nothing; the accepted connection would still get its answer.
    let other = Handshake { cookie: mine, socket_id: 8, ..conclusion }.datagram(0, 0);
    assert!(matches!(listener.handle_datagram(121 * SECOND, address(A), &other), Request::Ignored));
}

#[test]
fn requests_that_cannot_be_met_are_refused() {
    let mut listener = Listener::new(Config::default(), 1, [1; 32]);
    let cookie = cookie(&mut listener, A);
    let conclusion = Handshake { kind: Kind::Conclusion, cookie, ..request() };
    let bad = [
        Handshake { version: 3, ..conclusion },
        Handshake { socket_type: 2, ..conclusion },
        Handshake { mss: 0, ..conclusion },
        Handshake { mss: 75, ..conclusion },
        Handshake { flow_window: 0, ..conclusion },
        Handshake { flow_window: u32::MAX, ..conclusion },
        Handshake { isn: u32::MAX, ..conclusion },
        Handshake { socket_id: u32::MAX, ..conclusion },
    ];
    let refused = |answer: Request| {
        let Request::Answer(answer) = answer else { return false };
        Handshake::from_datagram(&answer).is_some_and(|(answer, _)| answer.kind == Kind::Refusal)
    };
    for request in bad {
        assert!(refused(listener.handle_datagram(0, address(A), &request.datagram(0, 0))), "{request:?}");
    }
    // A packet size of four billion bytes is one of this end's size.
    let datagram = Handshake { mss: u32::MAX, ..conclusion }.datagram(0, 0);
    let Request::Accepted(connection, _) = listener.handle_datagram(0, address(A), &datagram) else { panic!() };
    assert_eq!(connection.mss(), 1500);
    // The listener is full now.
    let other = Handshake { socket_id: 9, ..conclusion }.datagram(0, 0);
    assert!(refused(listener.handle_datagram(0, address(A), &other)));
    listener.forget(address(A), 7);
    assert!(matches!(listener.handle_datagram(0, address(A), &other), Request::Accepted(..)));
}

#[test]
fn a_refused_caller_is_told_so_but_not_by_a_stranger() {
    let mut caller = Caller::new(0, Config::default(), address(B), [2; 16]);
    let (request, _) = Handshake::from_datagram(&caller.poll_transmit(0).unwrap()).unwrap();
    let refusal = Handshake { kind: Kind::Refusal, ..request };
    let stranger = Handshake { isn: request.isn ^ 1, ..refusal };
    assert!(matches!(caller.handle_datagram(0, &stranger.datagram(request.socket_id, 0)), Progress::Waiting));
    assert!(matches!(caller.handle_datagram(0, &refusal.datagram(request.socket_id ^ 1, 0)), Progress::Waiting));
    let told = caller.handle_datagram(0, &refusal.datagram(request.socket_id, 0));
    assert!(matches!(told, Progress::Failed(CallError::Refused)));
}

/// Two callers that meet, with links that lose datagrams; returns both connections.
fn meet(mut ab: Link, mut ba: Link) -> (Box<Connection>, Box<Connection>) {
    let config = |mss| Config { mss, connect_timeout_ns: 30 * SECOND, ..Config::default() };
    let mut callers = [
        Caller::rendezvous(0, config(9000), address(B), [1; 16]),
        Caller::rendezvous(0, config(1400), address(A), [2; 16]),
    ];
    let mut done: [Option<Box<Connection>>; 2] = [None, None];
    let mut now = 0;
    while done.iter().any(Option::is_none) {
        assert!(now < 30 * SECOND);
        for (i, out) in [&mut ab, &mut ba].into_iter().enumerate() {
            match &mut done[i] {
                None => callers[i].poll_transmit(now).iter().for_each(|request| out.send(now, request)),
                Some(connection) => {
                    while let Some(Transmit::Control(packet)) = connection.poll_transmit(now, 65_000) {
                        out.send(now, packet);
                    }
                }
            }
        }
        let timers = (0..2).filter(|i| done[*i].is_none()).map(|i| callers[i].next_timeout());
        now = now.max(timers.chain(ab.next_ns()).chain(ba.next_ns()).min().unwrap());
        for (i, from) in [&mut ba, &mut ab].into_iter().enumerate() {
            while let Some(datagram) = from.arrived(now) {
                match &mut done[i] {
                    Some(connection) => connection.handle_datagrams(now, &datagram, datagram.len()),
                    None => {
                        if let Progress::Connected(connection) = callers[i].handle_datagram(now, &datagram) {
                            done[i] = Some(connection);
                        }
                    }
                }
            }
        }
    }
    let [Some(a), Some(b)] = done else { unreachable!() };
    (a, b)
}

#[test]
fn two_callers_meet_though_datagrams_are_lost() {
    for (ab, ba) in [(&[][..], &[][..]), (&[0], &[]), (&[1], &[0]), (&[0, 1, 2], &[1, 2]), (&[2], &[2, 3])] {
        let (a, b) = meet(losing(ab), losing(ba));
        assert_eq!((a.mss(), b.mss()), (1400, 1400), "{ab:?} {ba:?}");
        assert_ne!(a.local_id(), b.local_id());
    }
}

#[test]
fn a_listener_has_nothing_to_do_with_a_rendezvous() {
    let mut listener = Listener::new(Config::default(), 4, [1; 32]);
    for kind in [Kind::Rendezvous, Kind::Agreement, Kind::Refusal] {
        let datagram = Handshake { kind, ..request() }.datagram(0, 0);
        assert!(matches!(listener.handle_datagram(0, address(A), &datagram), Request::Ignored));
    }
}

#[test]
fn a_lost_shutdown_is_repeated_when_the_other_end_asks() {
    let mut pair = Pair::connect(Config::default(), Config::default(), clean(), clean(), 2);
    let mut lost = false;
    pair.ab.lose = Box::new(move |packet| packet[..2] == [0x80, 5] && !std::mem::replace(&mut lost, true));
    let from = pair.now_ns;
    pair.transfer(100_000, 10 * SECOND);
    assert!(pair.now_ns - from < 3 * SECOND);
}

#[test]
fn a_peer_that_vanishes_is_noticed_after_thirty_seconds() {
    for writes in [true, false] {
        let mut pair = Pair::connect(Config::default(), Config::default(), clean(), clean(), 2);
        pair.a.to_write = if writes { 5_000_000 } else { 0 };
        pair.run_to(pair.now_ns + 100 * MS);
        pair.ab.lose = Box::new(|_| true);
        pair.ba.lose = Box::new(|_| true);
        let from = pair.now_ns;
        pair.run_to_end(40 * SECOND);
        let after = pair.now_ns - from;
        assert!((29 * SECOND..31 * SECOND).contains(&after), "{} ms", after / MS);
        assert_eq!(pair.a.connection.ended(), Some(End::PeerLost));
        assert_eq!(pair.b.connection.ended(), Some(End::PeerLost));
    }
}

#[test]
fn an_idle_connection_lives_by_its_keep_alives() {
    let mut pair = Pair::connect(Config::default(), Config::default(), clean(), clean(), 2);
    pair.run_to(pair.now_ns + 300 * SECOND);
    assert_eq!((pair.a.connection.ended(), pair.b.connection.ended()), (None, None));
    let sent = pair.ab.sent;
    assert!(sent < 2_000, "{sent} datagrams in 300 idle seconds");
    pair.transfer(1_000, 10 * SECOND);
}

#[test]
fn every_second_ack_or_nak_may_be_lost() {
    for kind in [2u8, 3, 6] {
        let mut pair = Pair::connect(Config::default(), Config::default(), clean(), clean(), 2);
        pair.ab.loss = 0.01;
        for link in [&mut pair.ab, &mut pair.ba] {
            let mut n = 0;
            link.lose = Box::new(move |packet| {
                let hit = packet[..2] == [0x80, kind];
                n += u32::from(hit);
                hit && n % 2 == 0
            });
        }
        pair.transfer(3_000_000, 30 * SECOND);
    }
}

/// Connects to a listener at 10 ms over a path that drops what is longer than `limit`, bytes of payload, without a word. With
/// `knows`, the caller's host is told. Returns the packet size of both ends, and when they were connected.
fn over_a_path_of(limit: usize, knows: bool) -> (u16, u16, u64) {
    let config = Config { mss: 9000, smaller_mss: vec![1280, 1500], ..Config::default() };
    let mut listener = Listener::new(config.clone(), 4, [1; 32]);
    let mut caller = Caller::new(0, config, address(B), [2; 16]);
    let (mut now, mut answers, mut accepted) = (0, std::collections::VecDeque::new(), 0);
    loop {
        assert!(matches!(caller.handle_timeout(now), Progress::Waiting), "limit {limit}: no connection");
        while let Some(request) = caller.poll_transmit(now) {
            let bytes = caller.request_bytes();
            if bytes > limit {
                if knows {
                    caller.too_long();
                }
                continue;
            }
            let request: Vec<u8> = request.into_iter().chain(std::iter::repeat(0)).take(bytes).collect();
            match listener.handle_datagram(now, address(A), &request) {
                Request::Ignored => panic!("limit {limit}: ignored"),
                Request::Answer(answer) => answers.push_back((now + 10 * MS, answer)),
                Request::Accepted(connection, answer) => {
                    accepted = connection.mss();
                    answers.push_back((now + 10 * MS, answer));
                }
            }
        }
        now = answers.front().map_or(u64::MAX, |(at, _)| *at).min(caller.next_timeout());
        while answers.front().is_some_and(|(at, _)| *at <= now) {
            let (_, answer) = answers.pop_front().unwrap();
            if let Progress::Connected(connection) = caller.handle_datagram(now, &answer) {
                return (connection.mss(), accepted, now);
            }
        }
    }
}

#[test]
fn packets_are_as_large_as_the_path_carries() {
    for (limit, knows, mss, ms) in [
        (8972, false, 9000, 20),
        (8971, false, 1500, 520),
        (1472, true, 1500, 20),
        (1471, false, 1280, 1020),
        // A listener that takes only short requests.
        (HANDSHAKE_BYTES, false, 1280, 1520),
    ] {
        assert_eq!(over_a_path_of(limit, knows), (mss, mss, ms * MS), "{limit}");
    }
}

#[test]
fn a_late_answer_counts_for_the_size_that_it_answers() {
    let config = Config { mss: 9000, smaller_mss: vec![1500], ..Config::default() };
    let mut listener = Listener::new(config.clone(), 4, [1; 32]);
    let mut caller = Caller::new(0, config, address(B), [2; 16]);
    let first = caller.poll_transmit(0).unwrap();
    let Request::Answer(late) = listener.handle_datagram(0, address(A), &first) else { panic!() };
    let sizes: Vec<usize> =
        [250, 500].map(|ms| (caller.poll_transmit(ms * MS).unwrap(), caller.request_bytes()).1).into();
    assert_eq!(sizes, [8972, 1472]);
    assert!(matches!(caller.handle_datagram(600 * MS, &late), Progress::Waiting));
    let conclusion = caller.poll_transmit(600 * MS).unwrap();
    assert_eq!((Handshake::from_datagram(&conclusion).unwrap().0.mss, caller.request_bytes()), (9000, HANDSHAKE_BYTES));
}
