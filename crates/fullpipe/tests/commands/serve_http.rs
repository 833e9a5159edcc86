//! What `fullpipe serve` answers over HTTP: `--metrics` to Prometheus, `--http` to path controllers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::common::{NO_CONFIG, Server, error, fullpipe};

/// What a server answers at a path below one of its URLs, with its headers.
fn get(server: &Server, url: &str, path: &str, fields: &str) -> String {
    let url = server.listening[url].as_str().unwrap();
    let (host, top) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(format!("GET /{top}{path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// The values on the page, by name and labels.
fn values(server: &Server) -> BTreeMap<String, f64> {
    let page = get(server, "metrics", "", "");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Type: application/openmetrics-text"));
    assert!(body.ends_with("# EOF\n"), "{body}");
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap())).unwrap())
        .collect()
}

/// The program with such words, for somebody with a token or, if it is empty, without one.
fn client(words: &[&str], token: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(words).env("XDG_CONFIG_HOME", NO_CONFIG).env_remove("FULLPIPE_TOKEN");
    if !token.is_empty() {
        command.env("FULLPIPE_TOKEN", token);
    }
    command
}

/// Waits until the page has a value.
fn until(server: &Server, name: &str, value: f64) {
    for _ in 0..1000 {
        if values(server).get(name) == Some(&value) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{name} is not {value}: {:#?}", values(server));
}

/// One that comes before the server waits for it would end it.
#[test]
fn a_hangup_signal_during_the_start_ends_no_server() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile");
    // The start waits until somebody writes to it.
    nix::unistd::mkfifo(&profile, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["serve", "--port", "0", "--bind", "127.0.0.1", "--http", "0", "--profile"])
        .arg(&profile)
        .env("XDG_CONFIG_HOME", NO_CONFIG)
        .spawn()
        .unwrap();
    let catches_hangup = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:").map(str::trim));
        mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
    };
    let until = Instant::now() + Duration::from_secs(10);
    while !catches_hangup() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = nix::unistd::Pid::from_raw(server.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGHUP).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let ended = server.try_wait().unwrap();
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(ended, None);
}

#[test]
fn counts_are_those_of_what_was_served() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir_all(at("root/in")).unwrap();
    fs::create_dir_all(at("secret-name")).unwrap();
    for (name, len) in [("a", 1_000_000), ("b", 234_567)] {
        fs::write(at(&format!("secret-name/{name}")), vec![7; len]).unwrap();
    }
    let server = Server::start(&format!("--root {} --token-file {} --metrics 127.0.0.1:0", at("root"), at("token")));
    let run = |words: &[&str], token: &str| -> Output { client(words, token).output().unwrap() };
    let good = |output: Output| assert_eq!(error(&output).0, 0, "{}", error(&output).1);
    let at_first = values(&server);
    assert!(at_first["fullpipe_start_time_seconds"] > 1.6e9 && !at_first.keys().any(|name| name.contains("copied")));

    let token = fs::read_to_string(at("token")).unwrap().trim().to_owned();
    let url = format!("fullpipe://{}/in", server.address);
    good(run(&["cp", "-r", &at("secret-name"), &url], &token));
    good(run(&["cp", "-ru", &at("secret-name"), &url], &token));
    good(run(&["cp", &format!("{url}/secret-name/b"), &at("b")], &token));
    good(run(&["measure", &server.address, "--size", "2MB"], &token));
    assert_ne!(error(&run(&["measure", &server.address, "--size", "2MB"], "")).0, 0);
    server.log(5);

    let found = values(&server);
    for (name, value) in [
        ("served_clients_total{kind=\"copy\",direction=\"received\",outcome=\"complete\"}", 2.0),
        ("served_clients_total{kind=\"copy\",direction=\"sent\",outcome=\"complete\"}", 1.0),
        ("served_clients_total{kind=\"measurement\",direction=\"received\",outcome=\"complete\"}", 1.0),
        ("copied_files_total{direction=\"received\"}", 2.0),
        ("copied_files_total{direction=\"sent\"}", 1.0),
        ("copied_bytes_total{direction=\"received\"}", 1_234_567.0),
        ("copied_bytes_total{direction=\"sent\"}", 234_567.0),
        ("unserved_clients_total{reason=\"other\"}", 1.0),
        ("present_clients{kind=\"copy\"}", 0.0),
        ("present_clients{kind=\"measurement\"}", 0.0),
    ] {
        assert_eq!(found.get(&format!("fullpipe_{name}")), Some(&value), "{name}: {found:#?}");
    }
    assert!(found["fullpipe_connections_total"] >= 5.0);
    for direction in ["received", "sent"] {
        let segments = found[&format!("fullpipe_segments_total{{direction=\"{direction}\"}}")];
        let again = found[&format!("fullpipe_retransmitted_segments_total{{direction=\"{direction}\"}}")];
        assert!(segments > again && again >= 0.0, "{direction}: {segments} {again}");
    }
    let page = get(&server, "metrics", "", "");
    assert!(!page.contains("secret-name") && !page.contains(&at("")), "{page}");
}

#[test]
fn copies_that_leave_something_out_or_fail_are_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    // A folder stands where a file is to go.
    for folder in ["root/in/blocked", "source"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for (name, len) in [("source/blocked", 7), ("source/fine", 70_000), ("large", 32 << 20)] {
        fs::write(at(name), vec![7; len]).unwrap();
    }
    let flags = format!("--root {} --token-file {} --max-clients 1 --metrics 127.0.0.1:0", at("root"), at("token"));
    let server = Server::start(&flags);
    let token = fs::read_to_string(at("token")).unwrap().trim().to_owned();
    let url = format!("fullpipe://{}/in", server.address);
    let done = client(&["cp", "-r", &at("source/."), &url], &token).output().unwrap();
    assert_eq!(error(&done).0, 1, "{}", error(&done).1);
    until(&server, "fullpipe_present_clients{kind=\"copy\"}", 0.0);

    let mut killed = client(&["cp", "--quiet", "--bwlimit", "10mbit", &at("large"), &url], &token).spawn().unwrap();
    until(&server, "fullpipe_present_clients{kind=\"copy\"}", 1.0);
    let refused = client(&["cp", "--retries", "0", &at("source/fine"), &url], &token).output().unwrap();
    assert!(error(&refused).0 == 4 && error(&refused).1.contains("busy"), "{:?}", error(&refused));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let ended = |outcome| {
        format!("fullpipe_served_clients_total{{kind=\"copy\",direction=\"received\",outcome=\"{outcome}\"}}")
    };
    until(&server, &ended("failed"), 1.0);
    let found = values(&server);
    for (name, value) in [
        (ended("incomplete"), 1.0),
        ("fullpipe_skipped_files_total{direction=\"received\"}".to_owned(), 1.0),
        ("fullpipe_copied_files_total{direction=\"received\"}".to_owned(), 1.0),
        ("fullpipe_copied_bytes_total{direction=\"received\"}".to_owned(), 70_007.0),
        ("fullpipe_unserved_clients_total{reason=\"busy\"}".to_owned(), 1.0),
    ] {
        assert_eq!(found.get(&name), Some(&value), "{name}: {found:#?}");
    }
    assert!(!found.contains_key(&ended("complete")), "{found:#?}");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = fullpipe(&format!("serve --port 0 --bind 127.0.0.1 --metrics {address}"));
    let (code, text) = error(&output);
    assert!(code == 3 && text.contains(&format!("--metrics {address}: cannot listen there")), "{code} {text}");
    let (code, text) = error(&fullpipe("serve --metrics nowhere"));
    assert!(code == 2 && text.contains("give a port, or an address of this host with a port"), "{code} {text}");
}

#[test]
fn a_path_controller_gets_what_select_prints() {
    let server = Server::start("--http 127.0.0.1:0");
    for (rate, at_capacity) in [("10gbit", false), ("8gbit", true)] {
        let answer = get(&server, "http", &format!("/select?rtt=91.6ms&rate={rate}&loss=1e-5&size=1GB"), "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: application/json\r\n"), "{head}");
        let printed = fullpipe(&format!("select --rtt 91.6ms --rate {rate} --loss 1e-5 --size 1GB --json"));
        let selection: serde_json::Value = serde_json::from_str(body).unwrap();
        let mut printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
        // Who asks sits at another host.
        assert!(printed.as_object_mut().unwrap().remove("this_host").is_some(), "{printed}");
        assert_eq!(selection, printed);
        assert_eq!(selection["choice"]["expected"]["at_capacity"], at_capacity, "{rate}");
    }
    for (query, says) in [
        ("?rate=10gbit", "give the round-trip time"),
        ("?rtt=soon", "invalid value 'soon'"),
        ("?rtt=10ms&rtt=20ms", "cannot be used multiple times"),
        ("?rtt=10ms&profile=/etc/passwd", "'profile' is not asked for"),
        ("?rtt=10ms&size=1GB&duration=1s", "--duration"),
        ("?rtt=10ms&queue=1MB", "--queue needs the capacity"),
    ] {
        let answer = get(&server, "http", &format!("/select{query}"), "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("application/problem+json"), "{query}: {answer}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(says), "{query}: {answer}");
    }
}

/// A right question about a path that was not measured is no typo.
#[test]
fn a_path_that_was_not_measured_is_a_problem_of_its_own_type() {
    let server = Server::start("--http 127.0.0.1:0");
    let answer = get(&server, "http", "/select?rtt=10ms&rate=1kbit", "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 404 ") && head.contains("application/problem+json"), "{answer}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&problem["status"], &problem["asked"]), (&404.into(), &"rate=1kbit".into()), "{problem}");
    assert!(problem["has"].as_str().unwrap().contains("rate=1gbit"), "{problem}");
    let kind = problem["type"].as_str().unwrap();
    assert!(get(&server, "http", kind.strip_prefix("/v1").unwrap(), "").starts_with("HTTP/1.1 200 OK\r\n"), "{kind}");
    let missing = get(&server, "http", "/selects", "");
    assert!(missing.starts_with("HTTP/1.1 404 ") && !missing.contains("\"type\""), "{missing}");
    assert!(get(&server, "http", "/profiles", "").contains("\"version\""));
}

/// An ALTO client begins with the directory, and finds what `select` says for each path.
#[test]
fn an_alto_client_gets_the_rates_of_the_selection() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("alto.toml");
    let paths = r#"
        [pid.geneva]
        prefixes = ["192.0.2.0/24", "2001:db8::/32"]
        [pid.chicago]
        prefixes = ["198.51.100.0/24"]
        [[path]]
        from = "geneva"
        to = "chicago"
        rtt = "91.6ms"
        rate = "10gbit"
        loss = 1e-5
        [[path]]
        from = "chicago"
        to = "geneva"
        rtt = "91.6ms"
        rate = "1gbit"
    "#;
    let cost = |streams: &str| {
        fs::write(&file, format!("{streams}{paths}")).unwrap();
        let server = Server::start(&format!("--http 127.0.0.1:0 --alto {}", file.display()));
        let page = |path: &str, media: &str| -> serde_json::Value {
            let answer = get(&server, "http", path.strip_prefix("/v1").unwrap(), "");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let media = format!("Content-Type: application/alto-{media}+json\r\n");
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&media), "{head}");
            serde_json::from_str(body).unwrap()
        };
        let directory = page("/v1/alto/directory", "directory");
        let resources = directory["resources"].as_object().unwrap();
        let of_media = |media: &str| {
            let found: Vec<_> = resources.iter().filter(|(_, one)| one["media-type"] == media).collect();
            assert_eq!(found.len(), 1, "{directory}");
            found[0]
        };
        let (network_id, network) = of_media("application/alto-networkmap+json");
        let (_, costs) = of_media("application/alto-costmap+json");
        assert_eq!(directory["meta"]["default-alto-network-map"], network_id.as_str());
        assert_eq!(costs["uses"], serde_json::json!([network_id]));
        let [cost_type] = &costs["capabilities"]["cost-type-names"].as_array().unwrap()[..] else { panic!("{costs}") };
        let cost_type = &directory["meta"]["cost-types"][cost_type.as_str().unwrap()];
        let network = page(network["uri"].as_str().unwrap(), "networkmap");
        let costs = page(costs["uri"].as_str().unwrap(), "costmap");
        let meta = &costs["meta"];
        assert_eq!(meta["dependent-vtags"], serde_json::json!([network["meta"]["vtag"]]));
        for cost_type in [cost_type, &meta["cost-type"]] {
            assert_eq!((&cost_type["cost-metric"], &cost_type["cost-mode"]), (&"tput".into(), &"numerical".into()));
            assert_eq!(cost_type["cost-context"]["cost-source"], "estimation");
        }
        assert_eq!(network["network-map"]["chicago"], serde_json::json!({"ipv4": ["198.51.100.0/24"]}));
        assert_eq!(costs["cost-map"].as_object().unwrap().len(), 2, "{costs}");
        let parameters = meta["cost-type"]["cost-context"]["parameters"].clone();
        (costs["cost-map"].clone(), parameters["congestion-control-algorithm"].clone())
    };
    let best = |words: &str, most_streams: u64| {
        let printed = fullpipe(&format!("select --json --rtt 91.6ms {words}"));
        let selection: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
        let ranking = selection["ranking"].as_array().unwrap().clone();
        let is = |one: &&serde_json::Value| {
            one["transport"]["streams"].as_u64().unwrap() <= most_streams && one["transport"]["cc"] != "udt"
        };
        let best = ranking.iter().find(is).unwrap().clone();
        ((best["expected"]["mean_bps"].as_f64().unwrap() / 8.0) as u64, best["transport"]["cc"].clone())
    };
    for (streams, most) in [("", 1), ("streams = 8", 8)] {
        let (costs, congestion_controls) = cost(streams);
        for (from, to, words) in
            [("geneva", "chicago", "--rate 10gbit --loss 1e-5"), ("chicago", "geneva", "--rate 1gbit")]
        {
            let (bytes_per_s, cc) = best(words, most);
            assert_eq!((&costs[from][to], &congestion_controls[from][to]), (&bytes_per_s.into(), &cc), "{from} {most}");
        }
    }
    fs::write(&file, paths.replace("10gbit", "1kbit")).unwrap();
    for (flags, says) in [
        (
            format!("--http 0 --alto {}", file.display()),
            "the path from geneva to chicago: the profile has nothing for rate=1kbit",
        ),
        (format!("--alto {}", file.display()), "--http"),
        ("--http 0 --alto /nowhere".to_owned(), "--alto /nowhere: it cannot be read: No such file"),
    ] {
        let (code, text) = error(&fullpipe(&format!("serve --port 0 --bind 127.0.0.1 {flags}")));
        assert!(code == 2 && text.contains(says), "{code} {text}");
    }
    // Without the file there are no maps.
    let server = Server::start("--http 127.0.0.1:0");
    assert!(get(&server, "http", "/alto/directory", "").starts_with("HTTP/1.1 404 "));
}

/// What a server on all addresses of this host answers to a question from one of them.
fn from(server: &Server, address: [u8; 4]) -> String {
    let port = server.listening["http"].as_str().unwrap().rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"GET /v1/openapi.json HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn one_client_cannot_take_all_of_the_requests() {
    let server = Server::start("--http 127.0.0.1:0");
    let [one, other] = [[127, 0, 0, 5], [127, 0, 0, 6]];
    let refused = (0..1000).map(|_| from(&server, one)).find(|answer| !answer.starts_with("HTTP/1.1 200 ")).unwrap();
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("Retry-After: 1\r\n"), "{refused}");
    assert!(refused.contains("more than 10 requests per second of your address"), "{refused}");
    // It goes on, and yet another is answered.
    for _ in 0..5 {
        (0..10).for_each(|_| drop(from(&server, one)));
        assert!(from(&server, other).starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn a_path_controller_needs_the_token_if_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("http-token");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&format!("--http 127.0.0.1:0 --http-token-file {}", file.display()));
    for (fields, status) in [
        ("", "401"),
        ("Authorization: Bearer 0123456789abcdeF\r\n", "401"),
        ("Authorization: Basic 0123456789abcdef\r\n", "401"),
        ("Authorization: Bearer 0123456789abcdef\r\n", "200"),
    ] {
        let answer = get(&server, "http", "/select?rtt=10ms", fields);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {answer}");
    }
    // Other hosts only with a token.
    let (code, text) = error(&fullpipe("serve --port 0 --bind 127.0.0.1 --http 0.0.0.0:0"));
    assert!(code == 2 && text.contains("add --http-token-file FILE"), "{code} {text}");
    // Who may read the file has the token.
    let about = |server: &Server| -> Vec<String> {
        let warnings = server.log_with("note", 2).into_iter().filter(|line| line["kind"] == "warning");
        let texts = warnings.map(|line| line["text"].as_str().unwrap().to_owned());
        texts.filter(|text| text.contains(file.to_str().unwrap())).collect()
    };
    assert_eq!(about(&server), Vec::<String>::new());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let server = Server::start(&format!("--http 127.0.0.1:0 --http-token-file {}", file.display()));
    let shown = file.display();
    assert_eq!(about(&server), [format!("{shown} can be read by ANYONE on this host (mode 0644): chmod 600 {shown}")]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o620)).unwrap();
    let flags = format!("serve --port 0 --bind 127.0.0.1 --http 0 --http-token-file {}", file.display());
    let (code, text) = error(&fullpipe(&flags));
    assert!(
        code == 2 && text.contains("--http-token-file: ") && text.contains("can be written by its group"),
        "{text}"
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&file, "short\n").unwrap();
    let flags = format!("serve --port 0 --bind 127.0.0.1 --http 0 --http-token-file {}", file.display());
    let (code, text) = error(&fullpipe(&flags));
    assert!(code == 2 && text.contains("must have 16 characters or more"), "{code} {text}");
}
