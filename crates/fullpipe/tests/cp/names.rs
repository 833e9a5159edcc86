//! What goes where: one file or several, folders, slashes, names of all kinds.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use crate::host::{Host, far};
use crate::tree::{leftovers, only, same, write};

#[test]
fn one_file_there_and_back() {
    let host = Host::start();
    let source = host.file("a.bin");
    write(&source, "content");
    fs::create_dir(host.file("there")).unwrap();
    // Under another name, into a folder, with a slash behind it.
    host.cp().arg(&source).arg(host.far("there/b.bin")).ok();
    host.cp().arg(&source).arg(host.far("there")).ok();
    host.cp().arg(&source).arg(host.far("there/")).ok();
    only(&host.file("there"), &["a.bin", "b.bin"]);
    same(&source, &host.file("there/a.bin"));
    same(&source, &host.file("there/b.bin"));
    // Back the same ways.
    fs::create_dir(host.file("here")).unwrap();
    host.cp().arg(host.far("a.bin")).arg(host.file("here/b.bin")).ok();
    host.cp().arg(host.far("a.bin")).arg(host.file("here")).ok();
    host.cp().arg(host.far("a.bin")).arg(".").within(&host.file("here")).ok();
    only(&host.file("here"), &["a.bin", "b.bin"]);
    same(&source, &host.file("here/a.bin"));
    // What is there is replaced, also by something shorter.
    write(&source, "new");
    host.cp().arg("a.bin").arg(host.far("there/b.bin")).within(&host.file("")).ok();
    same(&source, &host.file("there/b.bin"));
}

#[test]
fn relative_names_start_at_the_far_users_home() {
    let host = Host::start();
    fs::create_dir(host.file("home")).unwrap();
    let home = host.file("home");
    let program = format!("export HOME={0}; cd {0}; exec {1} \"$@\"", home.display(), crate::host::FULLPIPE);
    let program = host.script("athome", &program);
    write(host.file("a"), "content");
    for to in ["far:b", "far:~/c", "far:", "far:./d"] {
        host.cp().far_program(&program).arg(host.file("a")).arg(to).ok();
    }
    only(&home, &["a", "b", "c", "d"]);
    host.cp().far_program(&program).arg("far:b").arg(host.file("back")).ok();
    same(&host.file("a"), &host.file("back"));
}

#[test]
fn names_that_need_no_current_folder_work_without_one() {
    let host = Host::start();
    write(host.file("a"), "1");
    let gone = |from: &OsStr, to: &OsStr| {
        fs::create_dir_all(host.file("gone")).unwrap();
        // The copy starts in the folder, which is gone by then.
        let script = "rmdir ../gone; f=$1; shift; exec \"$f\" cp \"$@\"";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, "sh", crate::host::FULLPIPE, "--ssh", &host.ssh, "--far-program"]);
        command.arg(crate::host::FULLPIPE).args([from, to]).current_dir(host.file("gone"));
        let done = command.output().unwrap();
        (done.status.code().unwrap(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (a, b, c) = (host.file("a"), host.file("b"), host.file("c"));
    assert_eq!(gone(a.as_os_str(), &far(&b)).0, 0);
    assert_eq!(gone(&far(&a), c.as_os_str()).0, 0);
    same(&a, &b);
    same(&a, &c);
    for (from, to) in [(OsStr::new("a"), &*far(&b)), (&*far(&a), OsStr::new("./c"))] {
        let (code, text) = gone(from, to);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("the current folder cannot be found"), "{text}");
    }
}

#[test]
fn ssh_takes_its_port_and_key_as_scp_does() {
    let host = Host::start();
    write(host.file("a"), "content");
    let port = host.port.to_string();
    host.cp()
        .arg("-pP")
        .arg(&port)
        .arg("-i")
        .arg(host.key())
        .arg(host.file("a"))
        .arg(format!("closed:{}", host.file("b").display()))
        .ok();
    host.cp().arg("-i").arg(host.key()).arg(host.file("a")).arg(format!("unknown:{}", host.file("c").display())).ok();
    same(&host.file("a"), &host.file("b"));
    same(&host.file("a"), &host.file("c"));
}

/// As cp: a folder that is there is copied into, so that the second time is another than the first; not so with -T.
#[test]
fn a_tree_under_another_name_again() {
    let host = Host::start();
    write(host.file("tree/a"), "1");
    write(host.file("tree/large"), crate::tree::bytes(3 << 20, 1));
    for push in [true, false] {
        let copy = |how: &str, to: &str| host.copy(push, &format!("--json {how}"), "tree", to);
        let to = if push { "push" } else { "pull" };
        for skipped in [0, 2, 2] {
            assert_eq!(copy("-ruT", to).ok().number("skipped"), skipped);
            same(&host.file("tree"), &host.file(to));
        }
        copy("-ru", to).ok();
        only(&host.file(to), &["a", "large", "tree"]);
        same(&host.file("tree"), &host.file(to).join("tree"));
        // The content of a folder goes to the same place each time, too.
        for skipped in [0, 2] {
            let content = format!("{to}-content/");
            assert_eq!(host.copy(push, "-ru --json", "tree/.", &content).ok().number("skipped"), skipped);
            only(&host.file(&content), &["a", "large"]);
        }
    }
    host.cp()
        .arg("-T")
        .arg(host.file("tree/a"))
        .arg(host.far("push"))
        .fails(1, "a folder stands where the file should be");
    let mut two = host.cp();
    two.arg("-T").arg(host.file("tree/a")).arg(host.file("tree/large")).arg(host.far("push"));
    two.fails_at_once(2, "-T takes one source");
}

#[test]
fn what_two_sources_bring_the_first_does() {
    let host = Host::start();
    for name in ["1/sub/f", "2/sub/f", "2/sub/only", "1/x", "2/x/y", "1/z/y", "2/z", "2/top", "1/sub/not", "2/sub/not"]
    {
        write(host.file(name), name);
    }
    write(host.file("1/large"), vec![1; 3_000_000]);
    write(host.file("2/large"), "small");
    for round in 0..2 {
        let (up, to) = (round % 2 == 0, format!("to{round}"));
        let name = |name: &str| if up { host.file(name).into() } else { host.far(name) };
        let into = if up { host.far(&format!("{to}/")) } else { host.file(&format!("{to}/")).into() };
        let cp = |sources: [&str; 2]| {
            let mut cp = host.cp();
            cp.words("-r --exclude=not -n 1").arg(name(sources[0])).arg(name(sources[1])).arg(&into);
            cp
        };
        let left = "an earlier source has an entry with the same name";
        let told = cp(["1/.", "2/."]).fails(1, left);
        for name in ["sub/f", "x", "z", "large"] {
            assert!(told.err.contains(&format!("not copied: {name}: {left}")), "{}", told.err);
        }
        only(&host.file(&to), &["large", "sub", "top", "x", "z"]);
        only(&host.file(&format!("{to}/sub")), &["f", "only"]);
        for name in ["sub/f", "x", "z", "large"] {
            same(&host.file(&format!("1/{name}")), &host.file(&format!("{to}/{name}")));
        }
        // The other way about, and where one of them keeps its name.
        fs::remove_dir_all(host.file(&to)).unwrap();
        cp(["2/sub", "1/."]).fails(1, "not copied: sub/f: an earlier source has an entry");
        same(&host.file("2/sub/f"), &host.file(&format!("{to}/sub/f")));
        fs::remove_dir_all(host.file(&to)).unwrap();
        cp(["1/.", "2/sub"]).fails(1, "not copied: sub/f: an earlier source has an entry");
        same(&host.file("1/sub/f"), &host.file(&format!("{to}/sub/f")));
        // What is no source's is none's.
        cp(["1/sub", "2/top"]).ok();
        let mut cp = host.cp();
        cp.words("-r --exclude=sub/f --exclude=[xz] --exclude=large").arg(name("1/.")).arg(name("2/sub/.")).arg(&into);
        cp.ok();
        same(&host.file("2/sub/f"), &host.file(&format!("{to}/f")));
    }
    // It is the first that has the name that decides, and links on the way to it are not followed.
    for name in ["3/x/a", "5/x/b", "3/p/a", "4/dir/f", "5/p/f"] {
        write(host.file(name), name);
    }
    write(host.file("4/x"), "a file");
    std::os::unix::fs::symlink("dir", host.file("4/p")).unwrap();
    let cp = |sources: [&str; 3]| {
        let mut cp = host.cp();
        cp.arg("-r");
        for name in sources {
            cp.arg(host.file(name));
        }
        cp.arg(host.far("three/"));
        cp
    };
    let told = cp(["3/.", "4/.", "5/."]).fails(1, "2 files or folders were not copied");
    assert!(
        told.err.contains("not copied: x: an earlier") && told.err.contains("not copied: p: an earlier"),
        "{}",
        told.err
    );
    only(&host.file("three/x"), &["a", "b"]);
    only(&host.file("three/p"), &["a", "f"]);
    // The very same is no other.
    cp(["3/.", "3/x", "3/."]).ok();
    // Without -r no content is sent, and beats nothing.
    let mut cp = host.cp();
    write(host.file("b"), "another b");
    cp.arg(host.file("5/x/.")).arg(host.file("b")).arg(host.far("flat/"));
    cp.fails(1, "it is a folder; copy it with -r");
    same(&host.file("b"), &host.file("flat/b"));
}

#[test]
fn a_tilde_is_the_home_directory_only_where_it_stands_alone() {
    let host = Host::start();
    write(host.file("r/x"), "x");
    write(host.file("r/~/x"), "another x");
    let get = |from: &str, to: &str| {
        host.cp().arg("-r").arg(host.far(from)).arg(host.file(to)).ok();
    };
    get("r/*", "all/");
    same(&host.file("r/x"), &host.file("all/x"));
    same(&host.file("r/~"), &host.file("all/~"));
    get("r/~", "one/");
    only(&host.file("one"), &["~"]);
    get("r/[~]/x", "inner/");
    assert_eq!(fs::read(host.file("inner/x")).unwrap(), b"another x");
}

#[test]
fn what_moves_is_named_where_that_is_wanted() {
    let host = Host::start();
    write(host.file("tree/large"), vec![7; 3 << 20]);
    write(host.file("tree/line\n"), "2");
    std::os::unix::fs::symlink("large", host.file("tree/link")).unwrap();
    let all = ["$'tree/line\\n'", "tree/large", "tree/link"];
    for (from, to) in
        [(host.file("tree").into_os_string(), host.far("up/")), (host.far("tree"), host.file("down/").into())]
    {
        let mut done = host.cp();
        let done = done.words("-rv").arg(&from).arg(&to).ok();
        let mut names: Vec<&str> = done.out.lines().collect();
        names.sort_unstable();
        assert_eq!(names, all);
        // What is there is not named again.
        let again = host.cp().words("-ruv --json").arg(&from).arg(&to).ok();
        assert!(again.json().iter().all(|line| line["kind"] != "file"), "{}", again.out);
    }
}

/// A file that was cut off at the destination, and is newer there for that.
#[test]
fn what_is_newer_there_and_another_is_named_and_can_be_settled() {
    let host = Host::start();
    for (push, len) in [(true, 3 << 20), (false, 100)] {
        let (from, to) = (host.file("tree"), host.file(&format!("to{len}")));
        let content = crate::tree::bytes(len, 1);
        let reset = || {
            for name in ["cut", "same", "touched", "other"] {
                write(from.join(name), &content);
                crate::tree::date(from.join(name), 1_000_000_000, 0);
                write(to.join("tree").join(name), &content);
            }
            write(to.join("tree/cut"), &content[..len / 3]);
            crate::tree::date(to.join("tree/same"), 1_000_000_000, 0);
            let mut changed = content.clone();
            changed[len / 2] ^= 1;
            write(to.join("tree/other"), &changed);
            crate::tree::date(to.join("tree/other"), 1_000_000_000, 0);
        };
        let copy = |how: &str| {
            let mut cp = host.cp();
            cp.words(how).arg("-r");
            if push {
                cp.arg(&from).arg(far(&to))
            } else {
                cp.arg(far(&from)).arg(&to)
            };
            cp
        };
        let kept = "kept: tree/cut is newer at the destination, and of another size; --checksum compares contents";
        reset();
        let done = copy("-uv").ok();
        assert_eq!((done.out.as_str(), done.err.matches("kept: ").count()), ("", 1), "{}", done.err);
        assert!(done.err.contains(kept), "{}", done.err);
        assert!(!copy("-u").ok().err.contains("kept"));
        let done = copy("-u --json").ok();
        let lines: Vec<_> = done.json().into_iter().filter(|line| line["kind"] == "kept").collect();
        assert!(lines.len() == 1 && lines[0]["name"] == "tree/cut", "{lines:?}");
        assert_eq!((done.number("newer"), done.number("skipped"), done.number("files")), (1, 4, 4));
        assert_eq!(fs::metadata(to.join("tree/cut")).unwrap().len(), len as u64 / 3);
        // What has the same content is not sent, and gets its time.
        for how in ["--checksum", "-uc"] {
            reset();
            let done = copy(how).arg("--json").ok();
            assert_eq!((done.number("skipped"), done.number("bytes")), (2, 2 * len as u64), "{}", done.out);
            same(&from, &to.join("tree"));
        }
        reset();
        assert_eq!(copy("-uI --json").ok().number("bytes"), 4 * len as u64);
        same(&from, &to.join("tree"));
    }
}

#[test]
fn several_sources_go_into_a_folder() {
    let host = Host::start();
    write(host.file("a"), "1");
    write(host.file("tree/b"), "2");
    let both = |cp: &mut crate::host::Cp, to: OsString| {
        cp.arg("-r").arg(host.file("a")).arg(host.file("tree")).arg(to).ok();
    };
    both(&mut host.cp(), host.far("new/"));
    both(&mut host.cp(), host.far("new"));
    only(&host.file("new"), &["a", "tree"]);
    same(&host.file("tree"), &host.file("new/tree"));
    let mut cp = host.cp();
    cp.arg("-r").arg(host.far("a")).arg(host.far("tree/")).arg(host.file("back")).ok();
    only(&host.file("back"), &["a", "tree"]);
    same(&host.file("tree"), &host.file("back/tree"));
}

#[test]
fn sources_of_the_same_name_do_not_mix() {
    let host = Host::start();
    for dir in ["x", "y"] {
        write(host.file(dir).join("data"), crate::tree::bytes(12 << 20, u64::from(dir == "x")));
    }
    let mut cp = host.cp();
    cp.arg(host.file("x/data")).arg(host.file("y/data")).arg(host.far("to/")).fails_at_once(2, "data");
    assert!(!host.file("to/data").exists());
    let mut cp = host.cp();
    cp.arg(host.far("x/data")).arg(host.far("y/data")).arg(host.file("to/")).fails_at_once(2, "data");
    // Contents of folders may meet too: what is there is whole, and another that came meanwhile is named.
    write(host.file("x/one"), "x");
    write(host.file("y/two"), "y");
    let done = host.cp().arg("-r").arg(host.file("x/.")).arg(host.file("y/.")).arg(host.far("to")).run();
    assert!(done.code() == 0 || done.code() == 1 && done.err.contains("not copied: data: "), "{}", done.err);
    let there = fs::read(host.file("to/data")).unwrap();
    assert!(["x", "y"].iter().any(|dir| fs::read(host.file(dir).join("data")).unwrap() == there));
    assert!(host.file("to/one").exists() && host.file("to/two").exists());
}

#[test]
fn folders_take_their_names_as_with_cp() {
    let host = Host::start();
    write(host.file("tree/sub/a"), "1");
    fs::create_dir(host.file("to")).unwrap();
    let push = |from: &str, to: &str| host.cp().arg("-r").arg(host.file(from)).arg(host.far(to)).ok();
    // Into a folder that is there; with or without a slash.
    push("tree", "to");
    push("tree/", "to/");
    only(&host.file("to"), &["tree"]);
    same(&host.file("tree"), &host.file("to/tree"));
    // One that is not there is the copy.
    push("tree", "new");
    same(&host.file("tree"), &host.file("new"));
    // Only the content.
    push("tree/.", "to/tree");
    push("tree/.", "fresh");
    only(&host.file("fresh"), &["sub"]);
    same(&host.file("tree/sub"), &host.file("fresh/sub"));
    // The same back.
    let pull = |from: &str, to: &str| host.cp().arg("-r").arg(host.far(from)).arg(host.file(to)).ok();
    fs::create_dir(host.file("back")).unwrap();
    pull("tree/", "back");
    same(&host.file("tree"), &host.file("back/tree"));
    pull("tree", "back/renamed");
    same(&host.file("tree"), &host.file("back/renamed"));
    pull("tree/.", "back/content");
    only(&host.file("back/content"), &["sub"]);
    host.cp().arg("-r").arg(".").arg(host.far("dot")).within(&host.file("tree")).ok();
    same(&host.file("tree/sub"), &host.file("dot/sub"));
    for folder in ["to", "new", "fresh", "back", "dot"] {
        assert_eq!(crate::tree::leftovers(&host.file(folder)), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn any_name_that_a_file_can_have() {
    let host = Host::start();
    let longest = "x".repeat(255);
    let names: &[&[u8]] = &[
        b"not\xff\xfeutf-8",
        b"new\nline",
        b"tab\t'quote' \"double\" $HOME `id` ; rm -rf *",
        b" ",
        b"-r",
        b"--",
        b"...",
        b"colon:here",
        b"\\",
        b"\x01\x7f",
        longest.as_bytes(),
    ];
    let tree = host.file("tree");
    for name in names {
        write(tree.join(OsStr::from_bytes(name)), name);
        write(tree.join("in").join(OsStr::from_bytes(name)).join(OsStr::from_bytes(name)), name);
        // Large ones go another way.
        let large = [&b"L"[..], &name[..name.len().min(200)]].concat();
        write(tree.join(OsStr::from_bytes(&large)), crate::tree::bytes((1 << 20) + 1, 1));
    }
    host.cp().arg("-r").arg(&tree).arg(host.far("to")).ok();
    same(&tree, &host.file("to"));
    host.cp().arg("-r").arg(host.far("tree")).arg(host.file("back")).ok();
    same(&tree, &host.file("back"));
    // As a source, and as the new name, by themselves.
    fs::create_dir(host.file("one")).unwrap();
    for name in &names[..3] {
        let name = OsStr::from_bytes(name);
        host.cp().arg("--").arg(tree.join(name)).arg(far(&host.file("one").join(name))).ok();
        host.cp().arg("-q").arg("--").arg(far(&tree.join(name))).arg(host.file("one").join(name)).ok();
        same(&tree.join(name), &host.file("one").join(name));
    }
    // Relative ones with a colon or a dash, as the shell gives them.
    host.cp().arg("./colon:here").arg("./-r").arg(host.far("rel/")).within(&tree).ok();
    only(&host.file("rel"), &["-r", "colon:here"]);
}

#[test]
fn a_deep_tree() {
    let host = Host::start();
    let mut deep = host.file("tree");
    for level in 0..300 {
        deep.push("d");
        if level % 50 == 49 {
            write(deep.join("file"), format!("{level}"));
        }
    }
    host.cp().arg("-r").arg(host.file("tree")).arg(host.far("to")).ok();
    same(&host.file("tree"), &host.file("to"));
    // Deeper than a host lets open files by itself.
    let few = host.script("few", &format!("ulimit -Sn 256; exec {} \"$@\"", crate::host::FULLPIPE));
    host.cp().far_program(&few).arg("-r").arg(host.far("tree")).arg(host.file("back")).ok();
    same(&host.file("tree"), &host.file("back"));
    // Deeper than a name can be long: said, and the rest is there.
    let part = "p".repeat(250);
    let mut at = host.file("long");
    fs::create_dir(&at).unwrap();
    write(at.join("rest"), "1");
    let mut folder = std::fs::File::open(&at).unwrap();
    for _ in 0..18 {
        use nix::sys::stat::Mode;
        nix::sys::stat::mkdirat(&folder, Path::new(&part), Mode::S_IRWXU).unwrap();
        let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY;
        folder = nix::fcntl::openat(&folder, Path::new(&part), flags, Mode::empty()).unwrap().into();
    }
    host.cp().arg("-r").arg(host.file("long")).arg(host.far("long2")).fails(1, "not copied: ");
    at = host.file("long2");
    assert_eq!(fs::read(at.join("rest")).unwrap(), b"1");
}

#[test]
fn a_tree_deeper_than_names_can_be() {
    use nix::fcntl::{AT_FDCWD, OFlag, openat};
    use nix::sys::stat::{Mode, mkdirat};
    let host = Host::start();
    write(host.file("tree/a"), "1");
    let how = OFlag::O_DIRECTORY | OFlag::O_PATH;
    let mut at = openat(AT_FDCWD, &host.file("tree"), how, Mode::empty()).unwrap();
    let part = "x".repeat(250);
    for _ in 0..17 {
        mkdirat(&at, part.as_str(), Mode::S_IRWXU).unwrap();
        at = openat(&at, part.as_str(), how, Mode::empty()).unwrap();
    }
    let done = host.cp().arg("-r").arg(host.file("tree")).arg(host.far("to/")).fails(1, "at most 4095 can be copied");
    // It never will be.
    assert_eq!(done.err.matches("not copied: ").count(), 1, "{}", done.err);
    assert!(!done.err.contains("the same command"), "{}", done.err);
    same(&host.file("tree/a"), &host.file("to/tree/a"));
    assert!(leftovers(&host.file("to")).is_empty());
}

/// As cp and scp: the file that the link leads to is written, and the link stays.
#[test]
fn a_link_that_is_named_as_destination_is_written_through() {
    let host = Host::start();
    write(host.file("real/file"), "old");
    fs::create_dir(host.file("links")).unwrap();
    symlink("../real/file", host.file("links/relative")).unwrap();
    symlink(host.file("real/file"), host.file("links/absolute")).unwrap();
    symlink("absolute", host.file("links/twice")).unwrap();
    for (round, link) in ["relative", "absolute", "twice"].into_iter().enumerate() {
        for (push, words, len) in [
            (true, "", 10),
            (true, "", 3 << 20),
            (true, "-T", 3 << 20),
            (false, "", 11),
            (false, "", 2 << 20),
            (false, "-T", 2 << 20),
            (true, "-T", 12),
            (false, "-T", 13),
        ] {
            write(host.file("a"), crate::tree::bytes(len, round as u64));
            host.copy(push, words, "a", &format!("links/{link}")).ok();
            same(&host.file("a"), &host.file("real/file"));
            only(&host.file("real"), &["file"]);
        }
    }
    only(&host.file("links"), &["absolute", "relative", "twice"]);
    for link in ["relative", "absolute", "twice"] {
        assert!(fs::symlink_metadata(host.file("links").join(link)).unwrap().is_symlink(), "{link}");
    }
}

#[test]
fn a_link_that_leads_to_no_file_is_neither_written_through_nor_replaced() {
    let host = Host::start();
    write(host.file("a"), "1");
    write(host.file("large"), crate::tree::bytes(3 << 20, 1));
    fs::create_dir(host.file("to")).unwrap();
    nix::unistd::mkfifo(&host.file("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let nothing = "it is a symbolic link to a file that does not exist";
    let special = "a device, FIFO or socket stands there";
    for (name, target, why) in [
        ("dangling", "no-such-file".into(), nothing),
        ("loop", "loop".into(), "too many symbolic links"),
        ("special", host.file("fifo"), special),
        ("stdout", "/proc/self/fd/1".into(), "it leads to an open file of a process"),
    ] {
        symlink(target, host.file("to").join(name)).unwrap();
        let to = format!("to/{name}");
        host.cp().arg(host.file("a")).arg(host.far(&to)).fails_at_once(2, why);
        host.cp().arg(host.far("a")).arg(host.file(&to)).fails_at_once(2, why);
    }
    // Nor is a link to a FIFO replaced where the file has its name by chance.
    for name in ["a", "large"] {
        symlink(host.file("fifo"), host.file("to").join(name)).unwrap();
        let why = format!("not copied: {name}: cannot be written at the destination: a symbolic link to a device");
        host.cp().arg(host.file(name)).arg(host.far("to/")).fails(1, &why);
        host.cp().arg(host.far(name)).arg(host.file("to/")).fails(1, &why);
    }
    only(&host.file("to"), &["a", "dangling", "large", "loop", "special", "stdout"]);
    for entry in fs::read_dir(host.file("to")).unwrap() {
        assert!(entry.unwrap().file_type().unwrap().is_symlink());
    }
    assert!(fs::symlink_metadata(host.file("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn a_copy_of_nothing_new_leaves_the_time_of_its_folder() {
    let host = Host::start();
    fs::create_dir_all(host.file("tree/deep")).unwrap();
    write(host.file("tree/deep/a"), "1");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for push in [true, false] {
        let to = if push { "pushed" } else { "pulled" };
        host.copy(push, "-r", "tree/.", to).ok();
        let time = || fs::metadata(host.file(to)).unwrap().modified().unwrap();
        let set = || fs::File::open(host.file(to)).unwrap().set_modified(long_ago).unwrap();
        set();
        host.copy(push, "-ru", "tree/.", to).ok();
        assert_eq!(time(), long_ago);
        write(host.file("tree").join(to), "new");
        host.copy(push, "-ru", "tree/.", to).ok();
        assert!(time() > long_ago, "something has come");
        set();
        host.copy(push, "-ru --dry-run", "tree/.", to).ok();
        assert_eq!(time(), long_ago);
    }
}
