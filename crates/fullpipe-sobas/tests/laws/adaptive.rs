//! The adaptive law against simulated paths: what it is held to.

use fullpipe_sobas::{Action, Algorithm, Config, Observation, Sobas, State, Train, Why};

use crate::sim::{Cc, Cross, Path, Sim, config, eight};

fn adaptive() -> Option<Config> {
    Some(config(Algorithm::Adaptive))
}

#[test]
fn clean_paths_are_filled_without_queue_or_loss() {
    for (gbps, rtt) in [(1.0, 10.0), (1.0, 60.0), (1.0, 183.0), (10.0, 10.0), (10.0, 91.6), (10.0, 183.0)] {
        let bdp = Path::new(gbps, rtt, 0.0).bdp();
        for queue in [65_536.0, 0.3 * bdp, 2.0 * bdp] {
            for cc in [Cc::Reno, Cc::Cubic] {
                let mut path = Path::new(gbps, rtt, queue.max(65_536.0));
                // A burst of 64 KB does not fit a queue of 64 KB behind another's tail.
                path.burst = if queue < 131_072.0 { 32_768.0 } else { 65_536.0 };
                let s = Sim::new(path, cc, adaptive()).run(4.5);
                let what = format!("{gbps} Gb/s, {rtt} ms, {queue} bytes, {cc:?}");
                assert!(s.share(3.5, 4.5) >= 0.97, "{what}: {}", s.share(3.5, 4.5));
                assert!(s.queue(3.5, 4.5) <= 1e-3, "{what}: {}", s.queue(3.5, 4.5));
                assert_eq!(s.dropped(0.0, 4.5), 0.0, "{what}");
                let started = s.reaches(0.95, 0.0).unwrap();
                assert!(started <= 1.5 * s.doubling(), "{what}: {started} s, doubling takes {}", s.doubling());
                assert_eq!(s.state(), Some(State::Hold), "{what}");
            }
        }
    }
}

/// Over a long path Hybla has filled the queue before the trains tell the rate, unless it begins below the rate that is assumed. Its
/// window grows manyfold in a round trip, so that the last trains meet a transfer that has all of the path; it is not taken for
/// others.
#[test]
fn an_assumed_rate_holds_back_what_begins_fast() {
    for rtt in [183.0, 250.0, 300.0, 366.0] {
        let run = |assumed_bps: f64| {
            let config = Config { assumed_bps, ..config(Algorithm::Adaptive) };
            let path = Path { offered: 2e9, ..Path::new(10.0, rtt, Path::new(10.0, rtt, 0.0).bdp()) };
            Sim::new(path, Cc::Hybla, Some(config)).run(3.0)
        };
        let (held, not) = (run(10e9), run(f64::INFINITY));
        assert!(held.dropped(0.0, 3.0) == 0.0 && held.queue(0.0, 3.0) < 1e-3, "{rtt} ms: {}", held.queue(0.0, 3.0));
        let states: Vec<_> = held.events.iter().map(|event| event.state).collect();
        assert_eq!(states, [State::Start, State::Hold], "{rtt} ms");
        let [held, not] = [held, not].map(|run| run.share(0.0, 3.0));
        assert!(held >= 0.98 * not, "{rtt} ms: {held}, {not}");
        // Without it, the first trains hold back late what has begun fast: 0.771, once a queue has shown the capacity.
        assert!(rtt < 366.0 || held > 0.778 && held > 1.005 * not, "{rtt} ms: {held}, {not}");
    }
    // A path that is slower than assumed, or faster.
    for gbps in [1.0, 25.0] {
        let path = Path::new(gbps, 100.0, Path::new(gbps, 100.0, 0.0).bdp());
        let share = |assumed_bps: f64| {
            let config = Config { assumed_bps, ..config(Algorithm::Adaptive) };
            Sim::new(path.clone(), Cc::Cubic, Some(config)).run(6.0).share(0.0, 6.0)
        };
        assert!(share(10e9) >= 0.98 * share(f64::INFINITY), "{gbps} Gb/s");
    }
}

/// Under a limit of the user's, the path is as one of that rate: nothing looks for more, and nothing takes the limit for others.
#[test]
fn a_limit_of_the_users_is_reached_and_kept() {
    for (gbps, rtt) in [(1.0, 10.0), (1.0, 91.6), (10.0, 45.6)] {
        for part in [0.05, 0.3, 0.9] {
            let path = Path::new(gbps, rtt, Path::new(gbps, rtt, 0.0).bdp());
            let config = Config { limit_bps: part * path.bps, ..config(Algorithm::Adaptive) };
            let s = Sim::new(path, Cc::Cubic, Some(config)).run(8.0);
            let what = format!("{part} of {gbps} Gb/s, {rtt} ms");
            assert!(s.share(4.0, 8.0) >= 0.97 * part, "{what}: {}", s.share(4.0, 8.0));
            assert!(s.share(0.0, 8.0) <= 1.01 * part, "{what}: {}", s.share(0.0, 8.0));
            assert_eq!(s.dropped(0.0, 8.0), 0.0, "{what}");
            let limit = config.limit_bps as u64;
            assert!(s.events.iter().all(|event| event.pacing_bps <= Some(limit)), "{what}");
            let states: Vec<_> = s.events.iter().map(|event| event.state).collect();
            assert_eq!(states, [State::Start, State::Hold], "{what}");
        }
    }
    // One above the path's rate changes nothing.
    let run = |limit_bps: f64| {
        let config = Config { limit_bps, ..config(Algorithm::Adaptive) };
        Sim::new(Path::new(1.0, 20.0, 5e5), Cc::Reno, Some(config)).run(4.0).share(0.0, 4.0)
    };
    assert_eq!(run(1.5e9), run(f64::INFINITY));
}

/// On a path that is slower than assumed, the rate is lowered as soon as two trains agree, before the capacity is decided.
#[test]
fn the_first_trains_that_agree_hold_the_sender_back() {
    let mut sobas = Sobas::new(Config { assumed_bps: 10e9, ..config(Algorithm::Adaptive) }, 300_000_000, 0);
    let paced = |sobas: &mut Sobas, now: u64| {
        let pacing = |action: &Action| if let Action::Pacing(bps) = action { *bps } else { None };
        sobas.tick(now).iter().find_map(pacing).map(|bps| bps as f64 * 1e-9)
    };
    assert!(paced(&mut sobas, 1_000_000).is_some_and(|gbps| (9.0..9.8).contains(&gbps)));
    for (at, slower, expected) in [(308_000_000, 1.0, None), (312_000_000, 1.01, Some(0.9..0.96))] {
        // 32 packets of 1,500 bytes at 1 Gb/s.
        let arrivals_ns = (0..32).map(|i| at + (f64::from(i) * 12_112.0 * slower) as u64).collect();
        sobas.observe(at + 400_000, Observation::Train(Train { sent: 32, arrivals_ns, ..Train::default() }));
        let paced = paced(&mut sobas, at + 500_000);
        assert_eq!(paced.is_some(), expected.is_some(), "{paced:?}");
        assert!(paced.is_none_or(|gbps| expected.is_some_and(|all| all.contains(&gbps))), "{paced:?}");
    }
    assert_eq!(sobas.state(), State::Estimate);
}

#[test]
fn the_papers_paths_are_filled_with_little_queue() {
    // By whether the queue is shallow or deep.
    let mut gains = [vec![], vec![]];
    for (name, path, available) in eight() {
        for bdps in [0.25, 1.0] {
            let mut path = path.clone();
            path.queue = (bdps * path.bdp()).max(65_536.0);
            path.burst = 16_384.0;
            let rtt = path.rtt;
            let s = Sim::new(path.clone(), Cc::Reno, adaptive()).run(8.0);
            let largest = Sim::new(path, Cc::Reno, None).run(8.0);
            let late = s.share(4.0, 8.0) / available;
            // What a shallow queue drops while TCP starts up beside others, Reno takes long to make up for.
            assert!(late >= if bdps < 1.0 { 0.8 } else { 0.9 }, "{name}, {bdps} BDP: {late}");
            // Those who yield to a longer queue are let: a third of the RTT.
            let most = if name == "tcp" { 0.36 * rtt } else { 2e-3 + 0.07 * rtt };
            assert!(s.mean_queue(4.0, 8.0) < most, "{name}, {bdps} BDP: {}", s.mean_queue(4.0, 8.0));
            let ratio = s.share(0.0, 8.0) / largest.share(0.0, 8.0);
            let what = format!("{name}, {bdps} BDP: {ratio} of the largest buffer");
            // Traffic that yields to delay is not pushed aside by losses.
            assert!(ratio >= if name == "tcp" { 0.6 } else { 0.8 }, "{what}");
            gains[usize::from(bdps >= 1.0)].push(ratio);
        }
    }
    let mean = |gains: &[f64]| gains.iter().sum::<f64>() / gains.len() as f64;
    assert!(mean(&gains[0]) >= 1.2 && mean(&gains[1]) >= 0.95, "{gains:?}");
}

#[test]
fn others_who_yield_to_a_longer_queue_are_let() {
    for (rtt, queue) in [(50.0, 1.5e6), (50.0, 2.5e6), (100.0, 4e6)] {
        for cc in [Cc::Reno, Cc::Cubic] {
            let mut path = Path::new(0.97, rtt, queue);
            path.burst = 16_384.0;
            let run = |path| Sim::new(path, cc, adaptive()).run(13.0);
            // Both leave as much beside an empty queue.
            let taken = 0.5e9;
            let tcp = run(path.clone().cross(Cross::Tcp { window: taken * rtt * 1e-3 / 8.0 }));
            let udp = run(path.cross(Cross::Udp { bps: taken, from: 0.0, to: 1e9 }));
            let what = format!("{rtt} ms, {queue} bytes, {cc:?}");
            let (yielded, not) = (tcp.share(10.0, 13.0), udp.share(10.0, 13.0));
            let expected = 1.0 - 0.5 / 0.97 / (1.0 + tcp.mean_queue(10.0, 13.0) * 1e3 / rtt);
            assert!(tcp.events.iter().any(|e| e.why == Why::Yielded), "{what}");
            // Up to 10 ms.
            assert!(tcp.mean_queue(10.0, 13.0) < 0.23e-3 * rtt, "{what}: {}", tcp.mean_queue(10.0, 13.0));
            assert!(yielded >= 1.06 * not && yielded >= 0.97 * expected, "{what}: {yielded} beside {not}, {expected}");
            assert!(udp.events.iter().all(|e| e.why != Why::Yielded), "{what}");
            assert!(udp.mean_queue(10.0, 13.0) < 2e-3 + 0.05e-3 * rtt, "{what}: {}", udp.mean_queue(10.0, 13.0));
            assert_eq!((tcp.dropped(1.0, 13.0), udp.dropped(1.0, 13.0)), (0.0, 0.0), "{what}");
        }
    }
}

#[test]
fn who_has_less_lets_a_longer_queue_stand() {
    let queue = |taken: f64, bytes: f64| {
        let path = Path::new(0.97, 20.0, bytes).cross(Cross::Udp { bps: taken * 0.97e9, from: 0.0, to: 1e9 });
        let s = Sim::new(path, Cc::Cubic, adaptive()).run(12.0);
        assert!(s.share(6.0, 12.0) >= 0.93 * (1.0 - taken), "{taken}, {bytes}: {}", s.share(6.0, 12.0));
        s.mean_queue(6.0, 12.0)
    };
    // Where the queue is deep: so do several come to share.
    let (most, half, least) = (queue(0.15, 2e6), queue(0.5, 2e6), queue(0.85, 2e6));
    assert!(half > 1.2 * most && least > 1.2 * half, "{most}, {half}, {least}");
}

#[test]
fn who_size_themselves_come_to_share() {
    // Each begins when those before it have all of the path.
    for (rtts, queue) in [(vec![20.0, 20.0], 1e6), (vec![20.0; 3], 5e6), (vec![20.0, 60.0], 5e6), (vec![20.0; 4], 5e6)]
    {
        let mut shares = vec![0.0; rtts.len()];
        let (last, seeds) = (5.0 * rtts.len() as f64, 4);
        for seed in 0..seeds {
            let all = rtts.iter().enumerate().map(|(i, rtt)| {
                let path = Path { seed: 10 * seed + i as u64, ..Path::new(0.97, *rtt, queue) };
                (5.0 * i as f64, Sim::new(path, Cc::Cubic, adaptive()))
            });
            let all = Sim::together(all.collect(), last + 25.0);
            for (i, sim) in all.iter().enumerate() {
                let end = last + 25.0 - 5.0 * i as f64;
                shares[i] += sim.share(end - 10.0, end) / seeds as f64;
            }
        }
        let (least, most) = shares.iter().fold((1.0, 0.0), |(l, m): (f64, f64), s| (l.min(*s), m.max(*s)));
        let what = format!("{rtts:?} ms, {queue} bytes: {shares:.2?}");
        assert!(least >= 0.4 * most && shares.iter().sum::<f64>() >= 0.93, "{what}");
    }
}

#[test]
fn where_queues_are_shallow_they_come_to_share_too() {
    for (rtt, queue, cc) in [(20.0, 300e3, Cc::Cubic), (60.0, 300e3, Cc::Reno), (60.0, 200e3, Cc::Cubic)] {
        let mut shares = [0.0; 2];
        let seeds = 4;
        for seed in 0..seeds {
            let all = (0..2).map(|i| {
                let path = Path { seed: 10 * seed + i as u64, ..Path::new(0.97, rtt, queue) };
                (5.0 * i as f64, Sim::new(path, cc, adaptive()))
            });
            for (i, sim) in Sim::together(all.collect(), 75.0).iter().enumerate() {
                let end = 75.0 - 5.0 * i as f64;
                shares[i] += sim.share(end - 15.0, end) / seeds as f64;
            }
        }
        let what = format!("{rtt} ms, {queue} bytes, {cc:?}: {shares:.2?}");
        assert!(shares[1] >= 0.4 * shares[0] && shares[0] >= 0.4 * shares[1], "{what}");
        assert!(shares[0] + shares[1] >= 0.92, "{what}");
    }
}

#[test]
fn who_is_not_led_by_losses_is_let_run_beside_others() {
    for (rtt, for_good) in [(20.0, false), (150.0, true)] {
        let path = Path::new(0.97, rtt, 1e6).cross(Cross::Udp { bps: 0.3e9, from: 0.0, to: 1e9 });
        let c = Config { decrease: 0.0, restart: false, ..config(Algorithm::Adaptive) };
        let s = Sim::new(path, Cc::Reno, Some(c)).run(8.0);
        let free = s.events.iter().position(|e| e.state == State::Free).expect("others are seen");
        assert_eq!(s.events[free].pacing_bps, None);
        let limited = s.events[free..].iter().any(|e| e.why == Why::Unyielding && e.pacing_bps.is_some());
        assert_eq!(limited, !for_good, "{rtt} ms");
        assert_eq!(s.state() == Some(State::Free), for_good, "{rtt} ms");
        assert_eq!(s.events.iter().filter(|e| e.state == State::Free).count(), 1, "once only: {rtt} ms");
    }
    // Chance losses while it is alone are seldom taken for others, and never for good.
    let (mut runs, mut freed) = (0, 0);
    for (rtt, cc) in [(20.0, Cc::Cubic), (60.0, Cc::Cubic), (20.0, Cc::Reno), (60.0, Cc::Reno)] {
        for seed in 1..6 {
            let mut path = Path::new(0.97, rtt, 1e6);
            (path.loss, path.seed) = (2e-5, seed);
            let c = Config { decrease: 0.0, restart: false, ..config(Algorithm::Adaptive) };
            let s = Sim::new(path, cc, Some(c)).run(8.0);
            assert_ne!(s.state(), Some(State::Free), "{rtt} ms, {cc:?}, seed {seed}");
            runs += 1;
            freed += u32::from(s.events.iter().any(|e| e.state == State::Free));
        }
    }
    assert!(4 * freed < runs, "{freed} of {runs}");
    // Alone it is limited.
    let c = Config { decrease: 0.0, restart: false, ..config(Algorithm::Adaptive) };
    let s = Sim::new(Path::new(0.97, 20.0, 1e6), Cc::Reno, Some(c)).run(4.0);
    assert!(s.events.iter().all(|e| e.state != State::Free));
}

#[test]
fn who_gives_up_little_is_let_run_beside_tcp() {
    let run = |cross: Cross, decrease: f64| {
        let mut path = Path::new(0.97, 50.0, 2.5e6).cross(cross);
        path.burst = 16_384.0;
        Sim::new(path, Cc::Scalable, Some(Config { decrease, ..config(Algorithm::Adaptive) })).run(13.0)
    };
    let free = |s: &Sim| s.events.iter().filter(|e| e.state == State::Free).count();
    let tcp = || Cross::Tcp { window: 0.5e9 * 0.05 / 8.0 };
    let (let_run, limited) = (run(tcp(), 0.125), run(tcp(), 0.5));
    assert_eq!((free(&let_run), free(&limited)), (1, 0));
    assert!(let_run.share(8.0, 13.0) >= 1.1 * limited.share(8.0, 13.0));
    // Not beside those who do not yield.
    let udp = run(Cross::Udp { bps: 0.5e9, from: 0.0, to: 1e9 }, 0.125);
    assert_eq!((free(&udp), udp.dropped(1.0, 13.0)), (0, 0.0));
}

#[test]
fn cross_traffic_is_followed() {
    for (gbps, rtt) in [(0.97, 20.0), (1.0, 60.0), (0.97, 183.0), (10.0, 20.0), (10.0, 91.6)] {
        let path = Path::new(gbps, rtt, 0.0);
        let bar = 20.0 * path.rtt + 2.0;
        let (come, gone) = (4.0, 4.0 + bar + 1.0);
        let end = gone + bar + 1.0;
        for (window, pacing) in [(true, true), (true, false), (false, true)] {
            let mut path = path.clone().cross(Cross::Udp { bps: 0.41e9 * gbps, from: come, to: gone });
            path.queue = 2.0 * path.bdp();
            let c = Config { window, pacing, ..config(Algorithm::Adaptive) };
            let s = Sim::new(path, Cc::Reno, Some(c)).run(end);
            let what = format!("{gbps} Gb/s, {rtt} ms, window {window}, pacing {pacing}");
            assert!(s.share(come + bar, gone) >= 0.94 * 0.59, "{what}: {}", s.share(come + bar, gone));
            let reached = s.reaches(0.95, gone).unwrap() - gone;
            assert!(reached <= bar, "{what}: {reached} s of {bar}");
            assert!(s.share(gone + bar, end) >= 0.95, "{what}: {}", s.share(gone + bar, end));
            if window && pacing {
                assert_eq!(s.dropped(0.0, end), 0.0, "{what}");
                assert!(
                    s.mean_queue(come + bar, gone) < 2e-3 + 0.06 * s.path.rtt,
                    "{what}: {}",
                    s.mean_queue(come + bar, gone)
                );
            }
        }
    }
}

#[test]
fn what_losses_took_comes_back() {
    // Shallow queues, which a start of others in mid-transfer overflows.
    for (gbps, rtt) in [(0.97, 20.0), (1.0, 60.0), (10.0, 50.0)] {
        for cc in [Cc::Reno, Cc::Cubic] {
            let mut path = Path::new(gbps, rtt, 0.0);
            path.queue = (0.2 * path.bdp()).max(300e3);
            let bar = 20.0 * path.rtt + 2.0;
            let (come, gone) = (4.0, 4.0 + bar + 1.0);
            let path = path.cross(Cross::Udp { bps: 0.41e9 * gbps, from: come, to: gone });
            let of = |restart| {
                let c = Config { restart, ..config(Algorithm::Adaptive) };
                Sim::new(path.clone(), cc, Some(c)).run(gone + bar + 1.0)
            };
            let (with, without) = (of(true), of(false));
            let what = format!("{gbps} Gb/s, {rtt} ms, {cc:?}");
            assert!(with.dropped(come, gone) > 0.0, "{what}: nothing to come back from");
            let shares = [&with, &without].map(|s| (s.share(come + bar, gone) / 0.59, s.share(gone + bar, s.now)));
            assert!(shares[0].0 >= 0.94 && shares[0].1 >= 0.95, "{what}: {shares:?}");
            assert!(with.events.iter().any(|e| e.why == Why::Restart), "{what}");
            assert!(without.events.iter().all(|e| e.why != Why::Restart), "{what}");
            // What comes after the others is no new loss.
            assert_eq!(with.dropped(gone, with.now), 0.0, "{what}");
        }
    }
}

#[test]
fn a_rate_that_overflowed_is_kept_beneath() {
    // 100 KB are 0.8 ms: less than the queue that is let stand to feel one's way by.
    // CUBIC comes back to its rate sooner, and so to the queue's edge more often.
    for (rtt, cc, most) in [(20.0, Cc::Reno, 6), (60.0, Cc::Reno, 6), (60.0, Cc::Cubic, 9)] {
        let mut path = Path::new(0.97, rtt, 1e5);
        let bar = 20.0 * path.rtt + 2.0;
        let (come, gone) = (4.0, 12.0 + bar);
        path = path.cross(Cross::Udp { bps: 0.4e9, from: come, to: gone });
        let s = Sim::new(path, cc, adaptive()).run(gone + bar + 1.0);
        let what = format!("{rtt} ms, {cc:?}");
        let losses = s.events.iter().filter(|e| e.why == Why::Loss).count();
        assert!(losses <= most, "{what}: {losses}");
        let shares = (s.share(come + bar, gone) / (1.0 - 0.4 / 0.97), s.share(gone + bar, s.now));
        assert!(shares.0 >= 0.88 && shares.1 >= 0.95, "{what}: {shares:?}");
    }
}

#[test]
fn a_sender_that_paused_has_its_rate_back() {
    // On slow paths trains take long; and they may not come at all.
    for (gbps, rtt, deaf) in [(0.01, 20.0, false), (0.1, 20.0, false), (1.0, 50.0, false), (1.0, 50.0, true)] {
        let mut s = Sim::new(Path::new(gbps, rtt, 1e6), Cc::Reno, adaptive()).run(5.0);
        (s.deaf, s.limit) = (deaf, Some(0.4e9 * gbps));
        let mut s = s.run(9.0);
        s.limit = None;
        let s = s.run(15.0);
        let what = format!("{gbps} Gb/s, {rtt} ms, {deaf}: {}", s.share(13.0, 15.0));
        assert!(s.share(6.0, 9.0) < 0.45 && s.share(13.0, 15.0) >= 0.95, "{what}");
    }
}

#[test]
fn who_has_gone_leaves_no_limit_behind() {
    // In `Hold` a queue of 100 KB overflows before anybody sees it stand; those trains that follow say what is free.
    for cc in [Cc::Reno, Cc::Cubic] {
        for taken in [0.2, 0.3, 0.41, 0.5] {
            let cross = Cross::Udp { bps: taken * 0.97e9, from: 4.0, to: 10.0 };
            let s = Sim::new(Path::new(0.97, 20.0, 100e3).cross(cross), cc, adaptive()).run(14.0);
            assert!(s.share(12.4, 14.0) >= 0.95, "{cc:?}, {taken}: {}", s.share(12.4, 14.0));
        }
    }
}

#[test]
fn a_sender_with_nothing_to_send_is_asked_ever_less() {
    let mut s = Sim::new(Path::new(1.0, 20.0, 1e6), Cc::Reno, adaptive());
    s.limit = Some(0.3e9);
    let s = s.run(40.0);
    let asked = s.events.iter().filter(|e| e.why == Why::Restart).count();
    assert!((1..=8).contains(&asked), "{asked}");
    assert_eq!(s.dropped(0.0, 40.0), 0.0);
}

#[test]
fn a_change_is_in_the_record() {
    let mut path = Path::new(0.97, 20.0, 0.0).cross(Cross::Udp { bps: 0.4e9, from: 2.0, to: 5.0 });
    path.queue = 2.0 * path.bdp();
    let s = Sim::new(path, Cc::Cubic, adaptive()).run(7.0);
    let of = |from: u64, to: u64| {
        let within = s.events.iter().filter(move |e| (from * 1_000_000..to * 1_000_000).contains(&e.at_ns));
        within.map(|e| (e.state, e.why)).collect::<Vec<_>>()
    };
    assert_eq!(of(0, 2000), [(State::Start, Why::Trains), (State::Hold, Why::Flat)]);
    assert_eq!(of(2000, 2200)[0], (State::Drain, Why::Queue));
    assert!(of(5000, 6000).contains(&(State::Follow, Why::Room)));
    assert_eq!(*of(5000, 7000).last().unwrap(), (State::Hold, Why::Capacity));
}

#[test]
fn lost_probes_without_a_queue_are_the_paths_own_losses() {
    let mut path = Path::new(0.97, 20.0, 2e6);
    path.loss = 0.03;
    let s = Sim::new(path.clone(), Cc::Cubic, adaptive()).run(10.0);
    let largest = Sim::new(path, Cc::Cubic, None).run(10.0);
    assert_eq!(s.state(), Some(State::Lossy));
    assert!(s.share(2.0, 10.0) > 0.9 && largest.share(2.0, 10.0) < 0.3);
}

#[test]
fn limits_come_back_when_the_others_have_gone() {
    let mut path = Path::new(0.1, 20.0, 1e6);
    path.loss = 0.05;
    let mut s = Sim::new(path, Cc::Cubic, adaptive()).run(6.0);
    assert_eq!(s.state(), Some(State::Disabled));
    s.path.loss = 0.0;
    let s = s.run(40.0);
    assert!(s.state() != Some(State::Disabled), "{:?}", s.state());
    assert!(s.share(35.0, 40.0) >= 0.9, "{}", s.share(35.0, 40.0));
}

#[test]
fn without_trains_the_capacity_is_learnt() {
    for (gbps, rtt) in [(1.0, 10.0), (1.0, 60.0), (10.0, 20.0)] {
        for cc in [Cc::Reno, Cc::Cubic] {
            let mut path = Path::new(gbps, rtt, 0.0);
            path.queue = path.bdp();
            let s = Sim::new(path, cc, Some(Config { trains: false, ..config(Algorithm::Adaptive) })).run(8.0);
            let what = format!("{gbps} Gb/s, {rtt} ms, {cc:?}");
            assert_eq!(s.events[0].why, Why::NoTrains);
            assert!(s.share(5.0, 8.0) >= 0.95, "{what}: {}", s.share(5.0, 8.0));
            assert!(s.mean_queue(5.0, 8.0) <= 3e-3, "{what}: {}", s.mean_queue(5.0, 8.0));
            assert_eq!(s.dropped(3.0, 8.0), 0.0, "{what}");
            let capacity = s.events.last().unwrap().capacity_bps.unwrap() as f64;
            assert!((capacity / (gbps * 1e9) - 1.0).abs() < 0.05, "{what}: {capacity}");
        }
    }
}

#[test]
fn without_trains_cross_traffic_is_followed() {
    for (gbps, rtt) in [(1.0, 10.0), (1.0, 60.0), (10.0, 20.0)] {
        let mut path = Path::new(gbps, rtt, 0.0).cross(Cross::Udp { bps: 0.4e9 * gbps, from: 5.0, to: 9.0 });
        path.queue = 2.0 * path.bdp();
        let s = Sim::new(path, Cc::Cubic, Some(Config { trains: false, ..config(Algorithm::Adaptive) })).run(14.0);
        let what = format!("{gbps} Gb/s, {rtt} ms");
        assert!(s.share(7.0, 9.0) >= 0.94 * 0.6, "{what}: {}", s.share(7.0, 9.0));
        assert!(s.mean_queue(7.0, 9.0) <= 3e-3 + 0.06 * s.path.rtt, "{what}: {}", s.mean_queue(7.0, 9.0));
        assert!(s.share(12.0, 14.0) >= 0.95, "{what}: {}", s.share(12.0, 14.0));
    }
}

#[test]
fn without_trains_chance_losses_are_no_capacity() {
    for cc in [Cc::Reno, Cc::Cubic] {
        for seed in 1..6 {
            let mut path = Path::new(1.0, 10.0, 0.0);
            (path.queue, path.loss, path.seed) = (path.bdp(), 0.01, seed);
            let mut s = Sim::new(path, cc, Some(Config { trains: false, ..config(Algorithm::Adaptive) })).run(0.05);
            s.path.loss = 0.0;
            let s = s.run(20.0);
            assert!(s.dropped(0.0, 0.05) > 0.0);
            assert!(s.share(19.0, 20.0) >= 0.95, "{cc:?}, {seed}: {}", s.share(19.0, 20.0));
        }
    }
}

#[test]
fn hosts_that_take_in_trains_slowly_do_not_hold_the_transfer_back() {
    for rtt in [5.0, 20.0, 60.0] {
        let mut path = Path::new(10.0, rtt, 10e6);
        path.host_bps = 4e9;
        let s = Sim::new(path, Cc::Cubic, adaptive()).run(6.0);
        assert!(s.events.iter().any(|e| e.why == Why::Trains && e.capacity_bps < Some(4_100_000_000)), "{rtt} ms");
        assert!(s.share(5.0, 6.0) >= 0.95, "{rtt} ms: {}", s.share(5.0, 6.0));
    }
}

#[test]
fn losses_of_the_path_itself_are_borne() {
    for (gbps, rtt, loss) in [(1.0, 20.0, 1e-3), (1.0, 90.0, 1e-3), (10.0, 45.0, 1e-4), (10.0, 45.0, 1e-3)] {
        for cc in [Cc::Reno, Cc::Cubic] {
            for seed in 1..4 {
                let mut path = Path::new(gbps, rtt, 0.0);
                (path.queue, path.loss, path.seed) = (path.bdp(), loss, seed);
                let bearing = Sim::new(path.clone(), cc, adaptive()).run(6.0);
                let what = format!("{gbps} Gb/s, {rtt} ms, {loss}, {cc:?}, {seed}");
                assert!(bearing.events.iter().any(|e| e.why == Why::RandomLoss), "{what}");
                assert!(bearing.share(4.0, 6.0) >= 0.95, "{what}: {}", bearing.share(4.0, 6.0));
                assert!(bearing.queue(4.0, 6.0) <= 2e-3, "{what}: {}", bearing.queue(4.0, 6.0));
            }
        }
    }
}

#[test]
fn losses_of_a_full_queue_are_not_taken_for_the_paths() {
    for queue in [65_536.0, 300_000.0, 2_500_000.0] {
        for cross in [
            Cross::Udp { bps: 0.4e9, from: 0.0, to: 1e9 },
            Cross::Udp { bps: 0.4e9, from: 3.0, to: 6.0 },
            Cross::Tcp { window: 1.25e6 },
        ] {
            // In half a millisecond of queue, another TCP has lost its window too when trains ask what is free.
            if queue < 1e5 && matches!(cross, Cross::Tcp { .. }) {
                continue;
            }
            for cc in [Cc::Reno, Cc::Cubic] {
                let s = Sim::new(Path::new(1.0, 20.0, queue).cross(cross), cc, adaptive()).run(10.0);
                let what = format!("{queue} bytes, {cross:?}, {cc:?}");
                assert!(!s.events.iter().any(|e| e.why == Why::RandomLoss), "{what}: {:?}", s.events);
            }
        }
    }
}

#[test]
fn a_longer_route_is_no_queue() {
    for (from, to) in [(20.0, 60.0), (60.0, 80.0)] {
        for cc in [Cc::Reno, Cc::Cubic] {
            for cross in [0.0, 0.4e9] {
                let mut path = Path::new(0.97, from, 5e6).cross(Cross::Udp { bps: cross, from: 0.0, to: 1e9 });
                path.burst = 32_768.0;
                let mut s = Sim::new(path, cc, adaptive()).run(3.0);
                s.path.rtt = to * 1e-3;
                let s = s.run(7.0);
                let what = format!("{from} to {to} ms, {cc:?}, {cross} bit/s");
                let rebased = s.events.iter().find(|e| e.why == Why::Rebased).unwrap();
                assert!(rebased.at_ns < 5_000_000_000, "{what}: {}", rebased.at_ns);
                assert!((rebased.rtt_ns as f64 * 1e-6 / to - 1.0).abs() < 0.01, "{what}: {}", rebased.rtt_ns);
                let share = s.share(5.5, 7.0) / (1.0 - cross / 0.97e9);
                assert!(share >= 0.9, "{what}: {share}");
            }
        }
    }
}

/// Others that have left explain no losses.
#[test]
fn losses_after_others_have_left_are_the_paths_own() {
    for rtt in [20.0, 90.0] {
        for cc in [Cc::Reno, Cc::Cubic] {
            let mut path = Path::new(1.0, rtt, 0.0).cross(Cross::Udp { bps: 0.4e9, from: 0.0, to: 2.0 });
            path.queue = path.bdp();
            let mut s = Sim::new(path, cc, adaptive()).run(12.0);
            let what = format!("{rtt} ms, {cc:?}");
            assert!(s.events.iter().any(|e| e.why == Why::Shared), "{what}");
            assert_eq!(s.state(), Some(State::Hold), "{what}: {:?}", s.events);
            s.path.loss = 1e-3;
            let s = s.run(16.0);
            assert!(s.events.iter().any(|e| e.why == Why::RandomLoss), "{what}: {:?}", s.events);
            assert!(s.share(14.0, 16.0) >= 0.9, "{what}: {}", s.share(14.0, 16.0));
        }
    }
}

#[test]
fn a_path_that_becomes_faster_is_filled() {
    for (gbps, rtt, loss) in [
        (0.3, 4.0, 0.0),
        (0.3, 20.0, 0.0),
        (0.3, 90.0, 0.0),
        (0.3, 20.0, 1e-3),
        // Trains take long here: at 50 Mb/s 0.3 s until one has drained.
        (0.1, 4.0, 0.0),
        (0.05, 4.0, 0.0),
        (0.05, 20.0, 0.0),
        (0.02, 90.0, 0.0),
        (0.01, 183.0, 0.0),
    ] {
        for cc in [Cc::Reno, Cc::Cubic] {
            let faster = gbps / 0.3 * 1e9;
            let mut path = Path::new(gbps, rtt, (faster * rtt * 1e-3 / 8.0).max(65_536.0));
            path.loss = loss;
            let mut s = Sim::new(path, cc, adaptive()).run(4.0);
            s.path.bps = faster;
            let asking_s: f64 = if gbps < 0.3 { (0.6 / gbps).max(8.0) } else { 0.0 };
            let settled = 2.0 + asking_s + 20.0 * rtt * 1e-3;
            let s = s.run(4.0 + settled + 1.0);
            let share = s.share(4.0 + settled, s.now);
            assert!(share >= 0.9, "{gbps} Gb/s, {rtt} ms, {loss}, {cc:?}: {share} {:?}", s.events);
        }
    }
}

/// Trains ask again and again whether the path has become faster. They may not overflow a queue of 64 KB.
#[test]
fn asking_for_a_faster_path_costs_nothing() {
    for (gbps, rtt) in [(0.1, 10.0), (0.1, 60.0), (1.0, 10.0), (1.0, 60.0)] {
        for seed in 1..=3 {
            let mut path = Path::new(gbps, rtt, 65_536.0);
            path.burst = 16_384.0;
            path.seed = seed;
            let s = Sim::new(path, Cc::Cubic, adaptive()).run(40.0);
            let what = format!("{gbps} Gb/s, {rtt} ms: {:?}", s.events);
            assert_eq!((s.dropped(5.0, 40.0), s.state()), (0.0, Some(State::Hold)), "{what}");
            assert!(s.share(5.0, 40.0) >= 0.97, "{what}");
        }
    }
}

#[test]
fn no_actuator_no_order() {
    let c = Config { window: false, pacing: false, ..config(Algorithm::Adaptive) };
    let s = Sim::new(Path::new(1.0, 20.0, 2.5e6), Cc::Cubic, Some(c)).run(3.0);
    assert!(!s.events.is_empty());
    assert!(s.events.iter().all(|e| e.pacing_bps.is_none() && e.window == 1 << 32));
}

#[test]
fn noisy_clocks_cost_little() {
    for jitter in [1e-4, 5e-4] {
        for cross in [0.0, 0.4e9] {
            let mut path = Path::new(0.97, 20.0, 2e6).cross(Cross::Udp { bps: cross, from: 0.0, to: 1e9 });
            path.jitter = jitter;
            let s = Sim::new(path, Cc::Reno, adaptive()).run(6.0);
            let share = s.share(3.0, 6.0) / (1.0 - cross / 0.97e9);
            assert!(share >= 0.95, "{jitter} s, {cross} bit/s: {share}");
            assert_eq!(s.dropped(1.0, 6.0), 0.0);
        }
    }
}

/// Delays that vary by more than the queue that is let stand show none, and trains arrive at any rate.
#[test]
fn where_delays_vary_tcp_is_let_alone() {
    for (gbps, rtt, varies) in [(1.0, 20.0, 4e-3), (0.3, 40.0, 10e-3), (0.3, 8.0, 4e-3)] {
        let mut path = Path::new(gbps, rtt, 0.0);
        path.queue = path.bdp();
        path.varies = varies;
        let s = Sim::new(path, Cc::Cubic, adaptive()).run(6.0);
        let what = format!("{gbps} Gb/s, {rtt} ms, {varies} s");
        assert!(s.events.iter().any(|e| e.why == Why::Noisy), "{what}: {:?}", s.events);
        assert!(s.share(2.0, 6.0) >= 0.9, "{what}: {}", s.share(2.0, 6.0));
    }
    // Others make delays vary too, and are found.
    for cc in [Cc::Reno, Cc::Cubic] {
        let path = Path::new(1.0, 20.0, 2.5e6).cross(Cross::Udp { bps: 0.4e9, from: 0.0, to: 1e9 });
        let s = Sim::new(path, cc, adaptive()).run(6.0);
        assert!(!s.events.iter().any(|e| e.why == Why::Noisy), "{:?}", s.events);
    }
}

#[test]
fn probes_that_are_lost_on_the_way_back_lower_no_rate() {
    let mut path = Path::new(0.97, 60.0, 7e6);
    path.loss_back = 0.03;
    let s = Sim::new(path, Cc::Cubic, adaptive()).run(8.0);
    assert!(!s.events.iter().any(|e| e.why == Why::Congested), "{:?}", s.events);
    assert!(s.share(2.0, 8.0) >= 0.95, "{}", s.share(2.0, 8.0));
}

/// The first windows of many streams are no others.
#[test]
fn others_whom_only_the_first_trains_saw_are_asked_for_again() {
    for loss in [0.0, 1e-2] {
        let mut path = Path::new(0.97, 60.0, 7e6);
        path.first_windows = (0.3e9, 0.2);
        path.loss = loss;
        let many = Config { streams: 32, ..config(Algorithm::Adaptive) };
        let s = Sim::new(path, Cc::Cubic, Some(many)).run(6.0);
        assert!(s.events.iter().any(|e| e.why == Why::Shared), "{:?}", s.events);
        let wanted = if loss > 0.0 { State::Lossy } else { State::Hold };
        assert_eq!(s.state(), Some(wanted), "{:?}", s.events);
        assert!(s.share(2.0, 6.0) >= 0.9, "{}", s.share(2.0, 6.0));
    }
}

#[test]
fn spare_streams_send_as_far_as_the_path_has_room_for_their_first_windows() {
    let spare = Config { spare: 63, ..config(Algorithm::Adaptive) };
    let long = Path::new(10.0, 50.0, 62.5e6);
    assert_eq!(Sim::new(long, Cc::Cubic, Some(spare)).run(1.0).sending, [64]);
    // 100 Mb/s over 20 ms hold 17 first windows.
    let slow = Path::new(0.1, 20.0, 250e3);
    let sending = Sim::new(slow, Cc::Cubic, Some(spare)).run(2.0).sending;
    assert!(matches!(sending[..], [12..=17]), "{sending:?}");
    // What holds a single first window needs only one stream.
    let short = Path::new(0.2, 0.5, 62.5e3);
    assert_eq!(Sim::new(short, Cc::Cubic, Some(spare)).run(2.0).sending, [0; 0]);
}

#[test]
fn beside_others_losses_add_no_streams() {
    let spare = Config { spare: 63, change: false, restart: false, ..config(Algorithm::Adaptive) };
    // Others of the start, and such as come later.
    for from in [0.0, 5.0] {
        let shared = Path::new(0.97, 20.0, 100e3).cross(Cross::Udp { bps: 400e6, from, to: 1e9 });
        let sim = Sim::new(shared, Cc::Cubic, Some(spare)).run(20.0);
        assert!(sim.dropped(from, 20.0) > 0.0, "{from}");
        // What the rate at the start holds, and no more.
        let free = if from > 0.0 { 970e6 } else { 570e6 };
        let most = free * 0.02 / 8.0 / 1448.0 / 10.0;
        assert!(sim.sending.last().is_none_or(|&sending| f64::from(sending) <= most), "{from}: {:?}", sim.sending);
    }
}

/// A transfer that has what it aims at is not held back by losses that come once in a while.
#[test]
fn losses_far_apart_add_no_streams() {
    let spare = Config { spare: 63, change: false, restart: false, ..config(Algorithm::Adaptive) };
    let mut sim = Sim::new(Path::new(0.1, 20.0, 250e3), Cc::Cubic, Some(spare)).run(5.0);
    let before = sim.sending.clone();
    for _ in 0..3 {
        sim.path.loss = 3e-3;
        let dropped = sim.dropped(0.0, sim.now);
        while sim.dropped(0.0, sim.now) == dropped {
            let until = sim.now + 0.001;
            sim = sim.run(until);
        }
        sim.path.loss = 0.0;
        let until = sim.now + 65.0;
        sim = sim.run(until);
    }
    assert_eq!(sim.sending, before);
}

/// A queue that others have left is drained once, and what the drain took comes back.
#[test]
fn who_bears_losses_has_its_rate_back_when_others_leave() {
    for cc in [Cc::Reno, Cc::Cubic] {
        let mut path = Path::new(1.0, 90.0, 0.0).cross(Cross::Udp { bps: 0.08e9, from: 6.0, to: 7.0 });
        (path.queue, path.loss) = (path.bdp(), 1e-3);
        let s = Sim::new(path, cc, adaptive()).run(15.0);
        let what = format!("{cc:?}: {:?}", s.events);
        assert!(s.events.iter().any(|e| e.why == Why::RandomLoss && e.at_ns < 6_000_000_000), "{what}");
        assert_eq!(s.state(), Some(State::Lossy), "{what}");
        assert!(s.share(12.0, 15.0) >= 0.95, "{what}: {}", s.share(12.0, 15.0));
        let drains = s.events.iter().filter(|e| e.state == State::Drain && e.at_ns > 6_000_000_000).count();
        assert!((1..=3).contains(&drains), "{what}");
    }
}

/// A firewall may shut UDP while a transfer runs. The sender's own figures then stand in for probes.
#[test]
fn where_udp_ceases_others_are_still_followed() {
    for cc in [Cc::Reno, Cc::Cubic] {
        let mut path = Path::new(0.97, 20.0, 0.0).cross(Cross::Udp { bps: 0.5e9, from: 3.0, to: 8.0 });
        path.queue = path.bdp();
        let mut s = Sim::new(path, cc, adaptive()).run(5.0);
        s.udp = false;
        s.sobas.as_mut().unwrap().set_trains(false);
        let s = s.run(18.0);
        let what = format!("{cc:?}: {:?}", s.events);
        assert!(s.share(6.0, 8.0) >= 0.9 * 0.47 / 0.97, "{what}: {}", s.share(6.0, 8.0));
        assert!(s.share(14.0, 18.0) >= 0.9, "{what}: {}", s.share(14.0, 18.0));
        assert!(!matches!(s.state(), Some(State::Yield | State::Disabled)), "{what}");
    }
}
