//! Any programs over an emulated path, as a scenario file says (`fullpipe lab run`), with the real guest kernel.

use std::time::{Duration, Instant};

use crate::common::{error, fullpipe, fullpipe_args, json_lines};

fn scenario(text: &str, flags: &[&str]) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    std::fs::write(&file, text).unwrap();
    let mut args = vec!["lab", "run", file.to_str().unwrap(), "--quiet"];
    args.extend(flags);
    fullpipe_args(&args)
}

#[test]
fn a_seed_on_the_command_line_is_that_of_the_scenario() {
    let text = |seed: u32| {
        let ping = r#"run = ["ping", "-q", "-i", "0.01", "-c", "200", "b"]"#;
        format!(
            "path = {{ rtt = \"2ms\", rate = \"1gbit\", loss = 0.3 }}\nseed = {seed}\n[[program]]\nend = \"a\"\n{ping}\n"
        )
    };
    let losses = |seed: u32, flags: &[&str]| {
        let lines = json_lines(&scenario(&text(seed), &[&["--json"], flags].concat()));
        // The queue is told of on the clock of the scenario, which begins at zero.
        let looks: Vec<u64> = lines.iter().filter_map(|line| line["ns"].as_u64()).collect();
        let path = lines.into_iter().rfind(|line| line["kind"] == "path").unwrap();
        let end_ns = (path["seconds"].as_f64().unwrap() * 1e9) as u64;
        assert!(looks[0] < 1_000_000 && looks.iter().all(|ns| *ns <= end_ns), "{looks:?} {end_ns}");
        path["impaired"]["drops"].as_u64().unwrap()
    };
    let (first, second) = (losses(1, &[]), losses(2, &[]));
    assert_ne!(first, second);
    assert_eq!(losses(1, &["--seed", "2"]), second);
}

#[test]
fn programs_run_as_an_ordinary_user() {
    let path = r#"path = { rtt = "1ms", rate = "1gbit", host_b = { base = "stock", user = "user" } }"#;
    let text = format!(
        "{path}\n[[program]]\nend = 'a'\nrun = ['id', '-u']\n[[program]]\nend = 'b'\nwait = true\nrun = ['id', '-u']\n"
    );
    let out = scenario(&text, &[]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains('0') && said.contains("65534"), "{said}");
    let record = json_lines(&fullpipe("measure lab:rtt=1ms,rate=1gbit,host=stock+user:user --size 10MB --json"));
    assert_eq!(record.last().unwrap()["bytes"], 10_000_000);
}

/// An ordinary user may set few congestion controls, and a receiver needs none.
#[test]
fn a_receiver_needs_no_congestion_control() {
    let measured = |flags: &str| {
        let text = format!(
            "path = {{ rtt = '1ms', rate = '1gbit', host_b = {{ base = 'stock', user = 'user' }} }}
            [[program]]
            end = 'b'
            run = ['fullpipe', 'serve', '--quiet']
            [[program]]
            end = 'a'
            start = '500ms'
            wait = true
            run = ['sh', '-c', 'fullpipe measure 10.0.2.1 --size 10MB --cc htcp {flags}']"
        );
        let out = scenario(&text, &[]);
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
    };
    let sent = measured("");
    assert!(sent.contains("goodput     ") && !sent.contains("error:"), "{sent}");
    let received = measured("--reverse");
    assert!(received.contains("may not use congestion control 'htcp'"), "{received}");
}

/// Ctrl-C while the streams are set up, which takes some round trips.
#[test]
fn a_run_that_is_interrupted_before_anything_arrived_says_so() {
    let text = r#"
        path = { rtt = "200ms", rate = "100mbit" }
        [[program]]
        end = "b"
        run = ["fullpipe", "serve", "--quiet"]
        [[program]]
        end = "a"
        start = "500ms"
        wait = true
        run = ["sh", "-c", "timeout -s INT 1.3 fullpipe measure 10.0.2.1 --duration 30s"]
    "#;
    let out = scenario(text, &[]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("goodput     none: nothing arrived\n"), "{said}");
}

#[test]
fn programs_have_names_space_environment_and_times() {
    let text = r#"
        path = { rtt = "1ms", rate = "1gbit" }
        space = "10MB"
        [[program]]
        end = "a"
        run = ["sh", "-c", "echo $GREETING; hostname; getent hosts b; date +%s; touch /tmp/x /run/x /space/x; sleep 3"]
        env = { GREETING = "hello" }
        [[program]]
        end = "b"
        start = "1s"
        stop = "2s"
        run = ["sh", "-c", "ls /tmp /space; exec sleep 100"]
        [[program]]
        end = "a"
        start = "1s"
        run = ["sh", "-c", "echo here >&2; touch /usr/cannot 2>/dev/null || echo read-only"]
    "#;
    let lines = json_lines(&scenario(text, &["--json"]));
    let (first, second, third) = (&lines[0], &lines[1], &lines[2]);
    let words: Vec<&str> = first["stdout"].as_str().unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["hello", "a", "10.0.2.1", "b"], "{words:?}");
    assert_eq!(first["ended"]["exit"], 0);
    assert!((first["end_s"].as_f64().unwrap() - 3.0).abs() < 0.1);
    assert_eq!(second["stopped"], true);
    assert_eq!(second["ended"]["signal"], 15);
    assert!((second["end_s"].as_f64().unwrap() - 2.0).abs() < 0.01);
    assert!(!second["stdout"].as_str().unwrap().contains('x'), "each end has folders of its own: {second}");
    assert_eq!(third["stderr"], "here\n");
    assert_eq!(third["stdout"], "read-only\n");
    assert!(!std::path::Path::new("/usr/cannot").exists());
}

/// Delay, loss and back again: what ping sees of each. Given in another order than they happen.
#[test]
fn a_path_changes_while_it_is_used() {
    let text = r#"
        path = { rtt = "20ms", rate = "1gbit" }
        [[change]]
        at = "3s"
        loss = 0
        rtt = "10ms"
        [[change]]
        at = "1s"
        rtt = "40ms"
        [[change]]
        at = "2s"
        loss = 1
        [[program]]
        end = "a"
        run = ["ping", "-i", "0.1", "-c", "39", "b"]
    "#;
    let lines = json_lines(&scenario(text, &["--json"]));
    let said = lines[0]["stdout"].as_str().unwrap();
    let got = |n: u32| {
        let line = said.lines().find(|line| line.contains(&format!("icmp_seq={n} ")))?;
        line.split("time=").nth(1)?.split(' ').next()?.parse::<f64>().ok()
    };
    for (packets, ms) in [(1..=9, Some(20.0)), (12..=19, Some(40.0)), (22..=29, None), (32..=39, Some(10.0))] {
        for n in packets {
            match (got(n), ms) {
                (None, None) => {}
                (Some(got), Some(ms)) => assert!((got - ms).abs() < 0.1, "{n}: {got} beside {ms}"),
                other => panic!("{n}: {other:?}\n{said}"),
            }
        }
    }
}

/// The queue keeps its packets when the rate changes, and its size unless that is given.
#[test]
fn the_rate_of_a_path_changes() {
    let text = r#"
        path = { rtt = "2ms", rate = "500mbit", queue = "200KB" }
        until = "4s"
        [[change]]
        at = "2s"
        rate = "100mbit"
        [[program]]
        end = "b"
        run = ["fullpipe", "serve", "--bind", "10.0.2.1", "--quiet"]
        [[program]]
        end = "a"
        start = "100ms"
        run = ["fullpipe", "measure", "10.0.2.1", "--cc", "cubic", "--duration", "5s", "--quiet"]
    "#;
    let lines = json_lines(&scenario(text, &["--json"]));
    let queue: Vec<_> = lines.iter().filter(|line| line["kind"] == "queue").collect();
    let number = |line: &serde_json::Value, key: &str| line[key].as_f64().unwrap();
    let rate = |from: usize| (number(queue[from + 8], "bytes") - number(queue[from], "bytes")) * 8.0 / 0.8;
    assert!((rate(11) / 500e6 - 1.0).abs() < 0.01, "{}", rate(11));
    assert!((rate(30) / 100e6 - 1.0).abs() < 0.01, "{}", rate(30));
    assert!(queue.iter().all(|line| number(line, "backlog_bytes") <= 200e3));
}

#[test]
fn what_goes_wrong_in_a_guest_is_told_apart() {
    let path = "path = { rtt = '1ms', rate = '1gbit' }\n";
    let program = |run: &str| format!("{path}[[program]]\nend='a'\nrun=['sh', '-c', '{run}']");
    let says = |text: &str, flags: &[&str], part: &str| {
        let (code, got) = error(&scenario(text, flags));
        assert_eq!(code, 6, "{got}");
        assert!(got.contains(part), "{got}");
    };
    says(&program("echo oops >&2; exit 3"), &[], "failed with status 3");
    says(&program("kill -9 $$"), &[], "was killed by signal 9");
    says(&format!("{path}[[program]]\nend='a'\nrun=['no-such-program']"), &[], "no program 'no-such-program'");
    let python = |code: &str| format!("{path}[[program]]\nend='a'\nrun=['python3', '-c', \"{code}\"]");
    says(&python("b'x' * (1 << 30)"), &["--memory", "100MB"], "ran out of its 95 MB of memory");
    let (code, text) = error(&scenario(&program("true"), &["--memory", "20MB"]));
    assert_eq!(code, 2);
    assert!(text.contains("cannot boot with 20MB; give it at least 64MB"), "{text}");
    let started = Instant::now();
    says(&program("while :; do :; done"), &["--limit", "2s"], "did not finish within 2 s of real time");
    assert!(started.elapsed() < Duration::from_secs(10));
    let no_setting = format!("sysctl = {{ 'net.ipv4.no_such' = '1' }}\n{}", program("true"));
    let (code, text) = error(&scenario(&no_setting, &[]));
    assert!(code == 2 && text.contains("setting net.ipv4.no_such to 1"), "{code}: {text}");
    says(&python("import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)"), &[], "ended without a result");
}

#[test]
fn not_even_root_in_the_guest_can_write_to_the_hosts_files() {
    let target = tempfile::tempdir().unwrap();
    let text = format!(
        "path = {{ rtt = '1ms', rate = '1gbit' }}\n[[program]]\nend='a'\n\
         run=['sh', '-c', 'mount -t hostfs none /run -o / && echo mounted; touch /run{}/written']",
        target.path().display()
    );
    let output = scenario(&text, &[]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("mounted"));
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
}

/// What programs print is kept byte for byte, and they write where the command line allows it.
#[test]
fn output_and_written_files_are_those_of_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    std::fs::create_dir(&data).unwrap();
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    let text = format!(
        r#"
        path = {{ rtt = "1ms", rate = "1gbit" }}
        [[folders]]
        end = "a"
        path = "{data}"
        write = true
        [[program]]
        end = "a"
        run = ["sh", "-c", "printf '\\377\\000.'; printf '\\376' >&2; echo new >{data}/file"]
        "#
    );
    let (code, refused) = error(&scenario(&text, &["--out", out]));
    assert!(code == 2 && refused.contains(&format!("--write {data}")), "{refused}");
    let done = scenario(&text, &["--out", out, "--write", data]);
    assert!(done.status.success() && done.stdout.windows(3).any(|part| part == b"\xff\0."), "{done:?}");
    assert!(done.stderr.contains(&0xfe), "{done:?}");
    let kept = |name: &str| std::fs::read(format!("{out}/{name}")).unwrap();
    assert_eq!((kept("0.out"), kept("0.err")), (b"\xff\0.".into(), b"\xfe".into()));
    assert_eq!(std::fs::read(format!("{data}/file")).unwrap(), b"new\n");
}

/// The process that pauses is a child of the program, as the one with which `serve` serves a client.
#[test]
fn host_noise_pauses_what_a_program_has_started() {
    let text = r#"
        path = { rtt = "1ms", rate = "1gbit", host_noise = "100ms" }
        [[program]]
        end = "b"
        wait = true
        run = ["sh", "-c", "python3 -c 'import time\nfor _ in range(500): print(time.monotonic_ns()); time.sleep(0.01)'; true"]
    "#;
    let lines = json_lines(&scenario(text, &["--json"]));
    let times = lines[0]["stdout"].as_str().unwrap().lines().map(|ns| ns.parse::<u64>().unwrap());
    let times: Vec<u64> = times.collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(times.len() == 500 && longest > 30_000_000, "{} times, {longest} ns", times.len());
}

/// Windows of others are as large as asked for, and not as the kernel rounds or tunes them.
#[test]
fn cross_traffic_has_the_windows_that_are_asked_for() {
    for (cross, window) in [("1x16KB", 16e3), ("4x21KB", 84e3), ("1x100KB", 100e3)] {
        let text = format!(
            "path = {{ rtt = \"40ms\", rate = \"97mbit\", mtu = 1500, cross = \"tcp:{cross}\" }}\n\
             [[program]]\nend = \"a\"\nrun = [\"sleep\", \"10\"]\n"
        );
        let lines = json_lines(&scenario(&text, &["--json"]));
        let path = lines.into_iter().rfind(|line| line["kind"] == "path").unwrap();
        let bytes = path["forward"]["bytes"].as_f64().unwrap();
        // One window in a round trip, and 5% of headers.
        let wanted = window * 10.0 / 0.04 * 1.05;
        assert!((0.92..1.03).contains(&(bytes / wanted)), "{cross}: {bytes} of {wanted}");
    }
}

#[test]
fn programs_of_the_distribution_run_unchanged() {
    let scenario = |name: &str| {
        let file = format!("{}/../../lab/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        json_lines(&fullpipe_args(&["lab", "run", &file, "--json"]))
    };
    let said = |line: &serde_json::Value| line["stdout"].as_str().unwrap().to_owned();
    assert!(said(&scenario("ping")[0]).contains("5 received, 0% packet loss"));
    assert!(said(&scenario("rsync")[2]).contains("Total transferred file size: 104,857,600 bytes"));
    let gridftp = scenario("gridftp");
    assert!(said(&gridftp[2]).contains("2147483648 bytes"), "{}", gridftp[2]);
}

/// Neither end knows that the path loses one of a thousand packets, whichever way the file goes; the sender's TCP tells.
#[test]
fn a_transfer_finds_out_what_its_path_loses() {
    const SIZE: u64 = 200_000_000;
    let dir = tempfile::tempdir().unwrap();
    // Over paths that lose nothing, this profile knows CUBIC only.
    let mut profile: serde_json::Value = serde_json::from_str(include_str!("../../shipped.json")).unwrap();
    let lossless: Vec<bool> =
        profile["paths"].as_array().unwrap().iter().map(|path| path["loss"].as_f64() == Some(0.0)).collect();
    profile["entries"].as_array_mut().unwrap().retain(|entry| {
        let of = entry["path"].as_u64().unwrap() as usize;
        entry["transport"]["cc"] == "cubic" || (entry["transport"]["cc"] == "bbr" && !lossless[of])
    });
    let (file, known) = (dir.path().join("data"), dir.path().join("profile.json"));
    std::fs::write(&known, profile.to_string()).unwrap();
    std::fs::write(&file, vec![7; SIZE as usize]).unwrap();
    let (file, folder, known) = (file.to_str().unwrap(), dir.path().to_str().unwrap(), known.to_str().unwrap());
    let push = ("loss = 1e-3", format!(r#""{file}", "fullpipe://10.0.2.1/space/""#));
    let pull = ("loss_back = 1e-3", format!(r#""fullpipe://10.0.2.1{file}", "/space/""#));
    // A queue that overflows loses too, but it is not the path.
    let shallow = (r#"queue = "100KB""#, push.1.clone());
    for (what, paths) in [push, pull, shallow] {
        let text = format!(
            r#"
            space = "500MB"
            [path]
            rtt = "45.6ms"
            rate = "1gbit"
            mtu = 1500
            {what}
            [[folders]]
            end = "a"
            path = "{folder}"
            [[folders]]
            end = "b"
            path = "{folder}"
            [[program]]
            end = "b"
            run = ["fullpipe", "serve", "--guest", "--quiet", "--bind", "10.0.2.1", "--root", "/", "--insecure"]
            [[program]]
            end = "a"
            start = "10ms"
            run = ["fullpipe", "cp", "--insecure", "--no-encrypt", "--json", "--steady", "--profile", "{known}", {paths}]
            "#
        );
        let lines = json_lines(&scenario(&text, &["--json"]));
        let said = lines[1]["stdout"].as_str().unwrap();
        let said: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let done = said.last().unwrap();
        assert_eq!((done["transport"]["cc"].as_str(), done["bytes"].as_u64()), (Some("cubic"), Some(SIZE)), "{done}");
        let advice = said.iter().filter(|line| line["kind"] == "note").map(|line| line["note"].as_str().unwrap());
        let advice: Vec<&str> = advice.collect();
        if what.starts_with("queue") {
            assert!(done["retransmits"].as_u64() > Some(0) && advice.is_empty(), "{advice:?}, {done}");
        } else {
            assert!((3e-4..3e-3).contains(&done["loss"].as_f64().unwrap()), "{done}");
            assert!(
                matches!(advice[..], [text] if text.contains("fullpipe chooses bbr")),
                "{what}: {advice:?}, {done}"
            );
        }
    }
}
