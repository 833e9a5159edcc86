//! Which files a pattern names, and which an exclude leaves out.

use std::fs;

use crate::host::Host;
use crate::large::both_ways;
use crate::tree::{only, same, write};

#[test]
fn what_is_excluded_stays() {
    let host = Host::start();
    for name in ["a", "a.tmp", "raw/b", "raw/c.tmp", "sub/raw/d", "sub/e"] {
        write(host.file("tree").join(name), name);
    }
    for (from, to) in
        [(host.file("tree").into_os_string(), host.far("up/")), (host.far("tree"), host.file("down/").into())]
    {
        let with = |word: &str| {
            let mut cp = host.cp();
            cp.words("-a --exclude *.tmp --exclude raw/** --json").arg(word).arg(&from).arg(&to);
            cp
        };
        assert_eq!(with("--dry-run").ok().json()[0]["files"], 3);
        // As often as people write them.
        assert_eq!(with("--dry-run").words("-ra -vv").ok().json().pop().unwrap()["files"], 3);
        assert_eq!(with("--nosuch").fails(2, "unexpected argument").json()[0]["kind"], "failed");
        assert_eq!(with("--exclude=d").ok().number("files"), 2);
        assert_eq!(with("--xattrs").ok().number("files"), 3);
        with("--token-file=t").fails(2, "--token-file has an effect only on copies to or from a server");
        with("--exclude=[").fails(2, "--exclude '[': unclosed character class");
        with("--exclude=[[:digit:]]").fails(2, "classes such as [:digit:] have no meaning here");
    }
    for to in ["up", "down"] {
        only(&host.file(to).join("tree"), &["a", "raw", "sub"]);
        only(&host.file(to).join("tree/raw"), &[]);
        same(&host.file("tree/sub"), &host.file(to).join("tree/sub"));
    }
}

#[test]
fn an_exclude_with_a_slash_before_it_counts_at_the_top_only() {
    let host = Host::start();
    for name in ["nm/a", "s/nm/b", "c"] {
        write(host.file("tree").join(name), name);
    }
    for (i, pattern) in ["./nm", "/nm", "./nm/", ".//nm"].into_iter().enumerate() {
        for (source, below) in [("tree/.", ""), ("tree", "tree")] {
            let to = format!("to{i}{below}");
            let mut cp = host.cp();
            let excluded = cp.arg("-r").arg("--exclude").arg(pattern);
            if i % 2 == 0 {
                excluded.arg(host.file(source)).arg(host.far(&format!("{to}/"))).ok();
            } else {
                excluded.arg(host.far(source)).arg(host.file(&format!("{to}/"))).ok();
            }
            only(&host.file(&to).join(below), &["c", "s"]);
            same(&host.file("tree/s"), &host.file(&to).join(below).join("s"));
        }
    }
    host.cp().words("-r --exclude ./").arg(host.file("tree")).arg(host.far("to/")).fails_at_once(2, "matches no name");
}

/// As in rsync, whose patterns begin at the named source.
#[test]
fn the_sources_name_may_stand_before_a_pattern() {
    both_ways(|push| {
        let host = Host::start();
        for name in ["ex/raw/a", "ex/b", "other/raw/c"] {
            write(host.file(name), name);
        }
        for (i, pattern) in ["/ex/raw", "./ex/raw", "ex/raw"].into_iter().enumerate() {
            let to = format!("to{i}");
            for source in ["ex", "other"] {
                let mut cp = host.copy(push, "-r", source, &format!("{to}/"));
                cp.args(&["--exclude", pattern]).ok();
            }
            only(&host.file(&to).join("ex"), &["b"]);
            same(&host.file("other"), &host.file(&to).join("other"));
        }
        // What one may include is not excluded either.
        let mut cp = host.copy(push, "-r", "ex", "some/");
        cp.args(&["--include", "/ex/raw", "--exclude", "/ex/*"]).ok();
        only(&host.file("some/ex"), &["raw"]);
    });
}

#[test]
fn patterns_are_expanded_at_the_far_end() {
    let host = Host::start();
    for name in ["r/1.h5", "r/2.h5", "r/.3.h5", "r/x", "s/1.h5", "r/[9].h5", "r/9.h5"] {
        write(host.file(name), name);
    }
    std::os::unix::fs::symlink("nowhere", host.file("r/broken.h5")).unwrap();
    let get = |pattern: &str, to: &str| {
        let mut cp = host.cp();
        cp.words("-r --json").arg(host.far(pattern)).arg(host.file(to));
        cp
    };
    get("r/?.h5", "some/").ok();
    only(&host.file("some"), &["1.h5", "2.h5", "9.h5"]);
    same(&host.file("r/2.h5"), &host.file("some/2.h5"));
    // What is called so is taken as it is.
    get("r/[9].h5", "literal/").ok();
    write(host.file("r/{run"), "no pattern");
    get("r/{run", "literal/").ok();
    fs::remove_file(host.file("r/{run")).unwrap();
    get("r/{run", "literal/").fails(2, "nothing there is called so, and as a pattern: unclosed alternate group");
    only(&host.file("literal"), &["[9].h5", "{run"]);
    get("*/1.h5", "two/").fails(2, "two sources are called 1.h5");
    get("[rs]", "all/").ok();
    only(&host.file("all/r"), &[".3.h5", "1.h5", "2.h5", "9.h5", "[9].h5", "broken.h5", "x"]);
    assert_eq!(get("r/[12]*", "none/").arg("--dry-run").ok().json()[0]["files"], 2);
    get("r/*.nc", "none/").fails(2, "nothing there is called so");
    get("r/?.h5", "name").fails(2, "patterns are expanded at the far end only, and where DST is a folder");
    // One of many that cannot be read does not keep the others.
    get("r/*.h5", "most/").fails(1, "broken.h5: this symbolic link points at a file that does not exist");
    write(host.file("r/nowhere"), "mended");
    get("r/*.h5", "most/").ok();
    only(&host.file("most"), &["1.h5", "2.h5", "9.h5", "[9].h5", "broken.h5"]);
}

/// A shell's pattern finds links, too.
#[test]
fn a_link_that_leads_nowhere_does_not_keep_other_sources() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("s/a"), "a");
        std::os::unix::fs::symlink("nowhere", host.file("s/broken")).unwrap();
        let why = "broken: this symbolic link points at a file that does not exist";
        let mut cp = host.cp();
        cp.words("-r");
        for name in ["s/broken", "s/a"] {
            cp.arg(if push { host.file(name).into_os_string() } else { host.far(name) });
        }
        cp.arg(if push { host.far("to/") } else { host.file("to/").into_os_string() }).fails(1, why);
        same(&host.file("s/a"), &host.file("to/a"));
        host.copy(push, "-r", "s/broken", "to/").fails(2, why);
    });
}

#[test]
fn what_a_pattern_cannot_look_into_is_named() {
    let host = Host::start();
    for name in ["p/1/a.h5", "p/2/b.h5", "p/f"] {
        write(host.file(name), name);
    }
    let program = host.unprivileged();
    fs::set_permissions(host.file("p/2"), std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    let get = |pattern: &str, to: &str| {
        let mut cp = host.cp();
        cp.far_program(&program).arg(host.far(pattern)).arg(host.file(to));
        cp
    };
    get("p/*/*.h5", "to/").fails(1, "p/2: cannot be read at the source: permission denied");
    assert!(host.file("to/a.h5").exists());
    get("p/2/*.h5", "none/").fails(2, "as far as that can be seen");
    fs::set_permissions(host.file("p/2"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    get("p/*/*.h5", "to/").ok();
    only(&host.file("to"), &["a.h5", "b.h5"]);
}
