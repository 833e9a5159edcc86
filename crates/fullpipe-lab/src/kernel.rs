//! Builds the guest's kernel from the distribution's source, once, and keeps it in the user's cache.
//!
//! The name of a build has a hash of the source tarball, the configuration and the patches. A build gets its name only when it
//! is complete, and holds a lock meanwhile. If two builds run at once, the second one waits and finds the first one's result.
//! A build removes what a killed one has left behind.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{LabError, host};

const CONFIG: &str = include_str!("../../../lab/kernel/config");
const PATCHES: [(&str, &str); 5] = [
    (
        "0001-um-jiffies-of-one-millisecond.patch",
        include_str!("../../../lab/kernel/0001-um-jiffies-of-one-millisecond.patch"),
    ),
    ("0002-um-room-for-every-xstate.patch", include_str!("../../../lab/kernel/0002-um-room-for-every-xstate.patch")),
    ("0003-um-seeded-random-numbers.patch", include_str!("../../../lab/kernel/0003-um-seeded-random-numbers.patch")),
    (
        "0004-net-buffer-limits-for-each-namespace.patch",
        include_str!("../../../lab/kernel/0004-net-buffer-limits-for-each-namespace.patch"),
    ),
    ("0005-null_blk-whole-rate.patch", include_str!("../../../lab/kernel/0005-null_blk-whole-rate.patch")),
];
/// Patches that change nothing but the time that a guest takes. A kernel of another version goes without those that do not fit.
const FASTER: [(&str, &str); 4] = [
    (
        "0006-um-timers-without-registers.patch",
        include_str!("../../../lab/kernel/0006-um-timers-without-registers.patch"),
    ),
    (
        "0007-um-copies-in-one-instruction.patch",
        include_str!("../../../lab/kernel/0007-um-copies-in-one-instruction.patch"),
    ),
    ("0008-um-fewer-register-writes.patch", include_str!("../../../lab/kernel/0008-um-fewer-register-writes.patch")),
    (
        "0009-um-clocks-without-system-calls.patch",
        include_str!("../../../lab/kernel/0009-um-clocks-without-system-calls.patch"),
    ),
];
/// Approximate number of objects that a build compiles, for the progress bar.
pub const STEPS: u64 = 1_750;
const TOOLS: [&str; 7] = ["make", "gcc", "flex", "bison", "bc", "xz", "patch"];

/// A kernel that has been built.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Executable of the kernel.
    pub executable: PathBuf,
    /// Release of the kernel, for example `6.12.117`.
    pub version: String,
}

/// Name of the file with the facts about a build.
const MANIFEST: &str = "manifest.json";

/// Facts about a build, kept next to its executable.
#[derive(Serialize, Deserialize)]
struct Manifest {
    version: String,
    recipe: String,
    source_sha256: String,
}

/// Returns the folder for files that can be made again: `$FULLPIPE_CACHE`, or else `fullpipe` in the user's cache folder.
///
/// # Errors
/// The user has no home folder.
pub fn cache_folder() -> Result<PathBuf, LabError> {
    let found = cache_folder_by(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from));
    let folder = found.ok_or_else(|| std::io::Error::other("set HOME or FULLPIPE_CACHE"));
    // A guest's kernel has another working directory.
    folder.and_then(std::path::absolute).map_err(host("finding the cache folder"))
}

fn cache_folder_by(var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The XDG base directory specification has relative paths ignored.
    let shared = || var("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    var("FULLPIPE_CACHE")
        .or_else(|| Some(shared()?.join("fullpipe")))
        .or_else(|| Some(var("HOME")?.join(".cache/fullpipe")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns a hash of the configuration and the patches.
fn recipe() -> String {
    let mut hash = Sha256::new();
    hash.update(CONFIG);
    PATCHES.iter().chain(&FASTER).for_each(|(_, patch)| hash.update(patch));
    hex(&hash.finalize()[..8])
}

/// Returns the numbers of a version, for comparison: 6.12 is after 6.1.
fn order(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// Whether `version` is `wanted` or one of its patch releases.
fn matches(version: &str, wanted: &str) -> bool {
    version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

/// Finds the newest kernel in the cache, or the newest of a version, that was built with this program's configuration and
/// patches.
///
/// # Errors
/// There is no such kernel, or this machine is not x86-64.
pub fn find(cache: &Path, wanted: Option<&str>) -> Result<Kernel, LabError> {
    check_architecture()?;
    let recipe = recipe();
    if let Some(wanted) = wanted.filter(|w| !order(w).is_empty() && order(w).as_slice() < OLDEST_VERSION.as_slice()) {
        return Err(LabError::TooOld { wanted: wanted.to_owned() });
    }
    let mut found: Vec<Kernel> = fs::read_dir(cache.join("kernel"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let text = fs::read(entry.path().join(MANIFEST)).ok()?;
            let manifest: Manifest = serde_json::from_slice(&text).ok()?;
            (manifest.recipe == recipe)
                .then(|| Kernel { executable: entry.path().join("linux"), version: manifest.version })
        })
        .collect();
    found.sort_by_key(|kernel| order(&kernel.version));
    let built: Vec<String> = found.iter().map(|kernel| kernel.version.clone()).collect();
    found.retain(|kernel| wanted.is_none_or(|w| matches(&kernel.version, w)));
    let kernel = found.pop().ok_or_else(|| LabError::NoKernel { wanted: wanted.map(str::to_owned), built })?;
    check_owner(kernel.executable.parent().unwrap_or(cache))?;
    Ok(kernel)
}

/// Checks that only this user and root can have written a kernel, which runs as this user.
fn check_owner(folder: &Path) -> Result<(), LabError> {
    let me = geteuid().as_raw();
    for path in [folder.to_owned(), folder.join(MANIFEST), folder.join("linux")] {
        let reading = || host(format!("reading {}", path.display()));
        let (named, file) = (fs::symlink_metadata(&path).map_err(reading())?, fs::metadata(&path).map_err(reading())?);
        let stranger = [&named, &file].map(MetadataExt::uid).into_iter().find(|uid| ![0, me].contains(uid));
        let why = match stranger {
            Some(uid) => format!("belongs to user {uid}"),
            None if file.mode() & 0o022 != 0 => "can be written by other users".to_owned(),
            None => continue,
        };
        return Err(LabError::UntrustedKernel { path, why, folder: folder.to_owned() });
    }
    Ok(())
}

/// Oldest kernel version that the patches fit.
const OLDEST_VERSION: [u64; 2] = [6, 1];

fn check_architecture() -> Result<(), LabError> {
    if cfg!(target_arch = "x86_64") { Ok(()) } else { Err(LabError::Architecture(std::env::consts::ARCH)) }
}

/// Finds the newest kernel source of the distribution, or the newest of a version.
fn find_source(wanted: Option<&str>) -> Result<PathBuf, LabError> {
    let mut found: Vec<(Vec<u64>, PathBuf)> = fs::read_dir("/usr/src")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            // Debian packs linux-source-6.12.tar.xz; Ubuntu puts its .tar.bz2 into a folder of that name.
            let path = if path.is_dir() { path.join(format!("{}.tar.bz2", entry.file_name().to_str()?)) } else { path };
            let name = path.file_name()?.to_str()?;
            let version = name.strip_prefix("linux-source-")?.split(".tar").next()?.to_owned();
            let fits = name.contains(".tar")
                && path.is_file()
                && wanted.is_none_or(|w| matches(w, &version) || matches(&version, w));
            (fits && order(&version).as_slice() >= OLDEST_VERSION.as_slice()).then(|| (order(&version), path))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, path)| path).ok_or_else(|| LabError::NoSource {
        wanted: wanted.map(str::to_owned),
        package: wanted.map_or("linux-source".into(), |w| format!("linux-source-{w}")),
    })
}

fn check_tools() -> Result<(), LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for tool in TOOLS {
        if !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()) {
            return Err(LabError::NoTool { tool });
        }
    }
    Ok(())
}

/// The source of a build.
pub struct Source<'a> {
    /// Tarball that the user has named.
    pub tarball: Option<&'a Path>,
    /// Version of the distribution's source.
    pub version: Option<&'a str>,
}

/// Builds a kernel, unless it has been built already. `progress` is called with the steps done, of about [`STEPS`], and the
/// name of the phase.
///
/// # Errors
/// The source or a tool is missing, or the build fails. No incomplete build has a kernel's name then.
pub fn build(cache: &Path, source: &Source<'_>, progress: &dyn Fn(u64, &str)) -> Result<Kernel, LabError> {
    check_architecture()?;
    let tarball = match source.tarball {
        Some(path) => path.to_owned(),
        None => find_source(source.version)?,
    };
    build_from(cache, tarball, source.version, progress)
}

/// Builds the kernel of a tarball, and checks that it has the version that was asked for: the name of a tarball may have less of it
/// than that.
fn build_from(
    cache: &Path,
    tarball: PathBuf,
    wanted: Option<&str>,
    progress: &dyn Fn(u64, &str),
) -> Result<Kernel, LabError> {
    let sha = sha256(&tarball)?;
    let folder = cache.join("kernel");
    let name = format!("{}-{}", &sha[..12], recipe());
    let target = folder.join(&name);
    // A build gets its name when it is complete, so one that is there needs no lock: the cache may be read-only.
    if !target.join(MANIFEST).is_file() {
        build_once(&folder, &name, &tarball, &sha, progress)?;
    }
    check_owner(&target)?;
    let text = fs::read(target.join(MANIFEST)).map_err(host("reading the kernel's manifest"))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|e| host("reading the kernel's manifest")(e.into()))?;
    if let Some(wanted) = wanted.filter(|wanted| !matches(&manifest.version, wanted)) {
        return Err(LabError::OtherVersion { wanted: wanted.to_owned(), tarball, built: manifest.version });
    }
    Ok(Kernel { executable: target.join("linux"), version: manifest.version })
}

/// Builds the kernel of this name, unless another process does so meanwhile.
fn build_once(
    folder: &Path,
    name: &str,
    tarball: &Path,
    sha: &str,
    progress: &dyn Fn(u64, &str),
) -> Result<(), LabError> {
    fs::create_dir_all(folder).map_err(host(format!("making {}", folder.display())))?;
    let lock = File::create(folder.join(format!("{name}.lock"))).map_err(host("locking the kernel's build"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
        .or_else(|(lock, _)| {
            progress(0, "waiting for another build");
            Flock::lock(lock, FlockArg::LockExclusive)
        })
        .map_err(|(_, e)| host("locking the kernel's build")(e.into()))?;
    let target = folder.join(name);
    if target.join(MANIFEST).is_file() {
        return Ok(());
    }
    check_tools()?;
    let building = folder.join(format!("{name}.building"));
    // Left by a build that was killed: the lock is ours now, so nobody works in it.
    let _ = fs::remove_dir_all(&building);
    let built = build_in(&building, tarball, sha, progress)
        .and_then(|()| fs::rename(building.join("result"), &target).map_err(host("keeping the kernel")));
    let _ = fs::remove_dir_all(&building);
    built
}

fn sha256(path: &Path) -> Result<String, LabError> {
    let reading = || host(format!("reading the kernel's source {}", path.display()));
    let mut file = File::open(path).map_err(reading())?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk).map_err(reading())? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&chunk[..n]),
        }
    }
}

fn build_in(folder: &Path, tarball: &Path, sha: &str, progress: &dyn Fn(u64, &str)) -> Result<(), LabError> {
    let tree = folder.join("tree");
    fs::create_dir_all(&tree).map_err(host(format!("making {}", tree.display())))?;
    progress(0, "unpacking");
    let mut tar = Command::new("tar");
    // A name with a colon would be a file of another host.
    tar.args(["--force-local", "-xf"]).arg(tarball).args(["--strip-components=1", "-C"]).arg(&tree);
    run(tar, "unpacking the source", &mut |_| {})?;
    for (name, text) in PATCHES {
        // From 6.13 on, user-mode Linux asks the host for the size of its xstate.
        if name.contains("xstate") && !mentions(&tree.join("arch/x86/um/user-offsets.c"), "2696") {
            continue;
        }
        // Before 6.12 no namespace but the first has these settings: both ends then have the same.
        if name.contains("namespace")
            && !mentions(&tree.join("net/core/sysctl_net_core.c"), "init_net.core.sysctl_optmem_max")
        {
            continue;
        }
        let file = folder.join(name);
        fs::write(&file, text).map_err(host("writing a patch"))?;
        run(patch(&tree, &file, &["--fuzz=3"]), "patching the source", &mut |_| {})?;
    }
    for (name, text) in FASTER {
        // There, a fork writes to the registers of its parent.
        if name.contains("register-writes")
            && mentions(&tree.join("arch/um/os-Linux/skas/process.c"), "copy_context_skas0")
        {
            continue;
        }
        let file = folder.join(name);
        fs::write(&file, text).map_err(host("writing a patch"))?;
        if run(patch(&tree, &file, &["--fuzz=1", "--dry-run"]), "trying a patch", &mut |_| {}).is_ok() {
            run(patch(&tree, &file, &["--fuzz=1"]), "patching the source", &mut |_| {})?;
        }
    }
    let config = folder.join("config");
    fs::write(&config, CONFIG).map_err(host("writing the configuration"))?;
    let make = |target: &[&str]| {
        let mut make = Command::new("make");
        make.current_dir(&tree).args(["ARCH=um", "SUBARCH=x86_64", "LC_ALL=C"]).args(target);
        // The same source gives the same kernel, whoever builds it and when.
        make.env("KBUILD_BUILD_TIMESTAMP", "2000-01-01")
            .env("KBUILD_BUILD_USER", "fullpipe")
            .env("KBUILD_BUILD_HOST", "lab")
            // The kernel's random numbers begin with its version.
            .env("KBUILD_BUILD_VERSION", "1");
        make.env("KCONFIG_ALLCONFIG", &config).env_remove("MAKEFLAGS").env_remove("MFLAGS");
        make
    };
    progress(0, "configuring");
    run(make(&["allnoconfig"]), "configuring", &mut |_| {})?;
    check_config(&tree.join(".config"))?;
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let mut steps = 0;
    run(make(&[&format!("-j{jobs}"), "linux"]), "compiling", &mut |line| {
        if line.starts_with("  CC ") || line.starts_with("  AR ") {
            steps += 1;
            progress(steps, "compiling");
        }
    })?;
    let version =
        fs::read_to_string(tree.join("include/config/kernel.release")).map_err(host("reading the release"))?;
    let manifest = Manifest { version: version.trim().to_owned(), recipe: recipe(), source_sha256: sha.to_owned() };
    let result = folder.join("result");
    let json = serde_json::to_vec_pretty(&manifest).map_err(|e| host("writing the manifest")(e.into()))?;
    fs::create_dir_all(&result)
        .and_then(|()| fs::copy(tree.join("linux"), result.join("linux")))
        .and_then(|_| fs::write(result.join(MANIFEST), json))
        .map_err(host("keeping the kernel"))?;
    // Symbols are for whoever debugs the kernel; without them it is a tenth of the size.
    let mut strip = Command::new("strip");
    strip.arg(result.join("linux"));
    run(strip, "stripping the kernel", &mut |_| {})?;
    // Whatever the umask: what others can write to is not used.
    for (path, mode) in [(result.clone(), 0o755), (result.join("linux"), 0o755), (result.join(MANIFEST), 0o644)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(host("keeping the kernel"))?;
    }
    Ok(())
}

/// The command that applies a patch to a source.
fn patch(tree: &Path, file: &Path, how: &[&str]) -> Command {
    let mut patch = Command::new("patch");
    patch.args(["-p1", "--batch"]).args(how).arg("-d").arg(tree).arg("-i").arg(file);
    patch
}

fn mentions(file: &Path, text: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|content| content.contains(text))
}

/// Checks that the source has granted every option of the configuration. A missing option would show only much later, as a
/// strange result.
fn check_config(file: &Path) -> Result<(), LabError> {
    let granted = fs::read_to_string(file).map_err(host("reading the configuration"))?;
    let granted: std::collections::HashSet<&str> = granted.lines().collect();
    let missing: Vec<&str> = CONFIG
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("CONFIG_") && !line.ends_with("=n") && !granted.contains(line))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(LabError::Build { doing: "configuring", why: format!("this source did not grant {}", missing.join(", ")) })
}

/// Runs a step of the build. Its error has the last lines that the step printed.
fn run(mut command: Command, doing: &'static str, line: &mut dyn FnMut(&str)) -> Result<(), LabError> {
    let failed = |why: String| LabError::Build { doing, why };
    let (output, writer) = std::io::pipe().map_err(|e| failed(e.to_string()))?;
    let errors = writer.try_clone().map_err(|e| failed(e.to_string()))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut child = command.spawn().map_err(|e| failed(format!("{}: {e}", command.get_program().display())))?;
    // Ours must close too, or the end of the output never comes.
    drop(command);
    let mut tail = std::collections::VecDeque::new();
    for text in BufReader::new(output).lines().map_while(Result::ok) {
        line(&text);
        tail.push_back(text);
        if tail.len() > 15 {
            tail.pop_front();
        }
    }
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let text: Vec<String> = tail.into();
    Err(failed(format!("{status}\n{}", text.join("\n"))))
}

/// Writes the configuration and the patches, for a build by hand.
///
/// # Errors
/// `to` cannot be written.
pub fn print_recipe(to: &mut impl Write) -> std::io::Result<()> {
    writeln!(to, "{CONFIG}")?;
    PATCHES.iter().chain(&FASTER).try_for_each(|(_, patch)| writeln!(to, "{patch}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(order("6.12.117") > order("6.1.192"));
        assert!(matches("6.1.192", "6.1"));
        assert!(!matches("6.12.117", "6.1"));
        assert!(matches("6.12.117", "6.12.117"));
    }

    #[test]
    fn an_unknown_kernel_says_how_to_build_it() {
        let empty = std::env::temp_dir().join("fullpipe-no-such-cache");
        let error = find(&empty, Some("6.12")).unwrap_err().to_string();
        assert!(error.contains("fullpipe lab kernel --version 6.12"), "{error}");
    }

    #[test]
    fn a_relative_cache_folder_of_the_desktop_is_ignored() {
        let folder = |vars: &[(&str, &str)]| {
            cache_folder_by(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "cache")]), Some("/home/me/.cache/fullpipe".into()));
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/cache")]), Some("/cache/fullpipe".into()));
        assert_eq!(folder(&[home, ("FULLPIPE_CACHE", "mine")]), Some("mine".into()));
        assert_eq!(folder(&[]), None);
    }

    /// A kernel of this recipe in a cache. Returns its folder.
    fn kept_kernel(cache: &Path, version: &str) -> PathBuf {
        let folder = cache.join("kernel").join(version);
        fs::create_dir_all(&folder).unwrap();
        let manifest = Manifest { version: version.into(), recipe: recipe(), source_sha256: String::new() };
        fs::write(folder.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
        fs::write(folder.join("linux"), "").unwrap();
        for (path, mode) in [("", 0o755), ("linux", 0o755), (MANIFEST, 0o644)] {
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    #[test]
    fn a_kernel_that_others_can_write_to_is_refused() {
        let cache = tempfile::tempdir().unwrap();
        let folder = kept_kernel(cache.path(), "6.12.1");
        assert_eq!(find(cache.path(), None).unwrap().version, "6.12.1");
        for (name, good, bad) in [("linux", 0o755, 0o757), (MANIFEST, 0o644, 0o664), ("", 0o755, 0o1777)] {
            let path = folder.join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(bad)).unwrap();
            let error = find(cache.path(), None).unwrap_err();
            assert!(matches!(error, LabError::UntrustedKernel { .. }), "{error}");
            assert!(error.to_string().contains("can be written by other users"), "{error}");
            fs::set_permissions(&path, fs::Permissions::from_mode(good)).unwrap();
        }
        // Only root can give a file away.
        if std::os::unix::fs::chown(folder.join("linux"), Some(65_534), None).is_ok() {
            let error = find(cache.path(), None).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
    }

    #[test]
    fn a_missing_tarball_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let source = Source { tarball: Some(Path::new("/no/such.tar.xz")), version: None };
        assert!(build(cache.path(), &source, &|_, _| {}).unwrap_err().to_string().contains("/no/such.tar.xz"));
        assert!(!cache.path().join("kernel").exists());
    }

    #[test]
    fn a_broken_tarball_leaves_no_kernel() {
        let cache = tempfile::tempdir().unwrap();
        let tarball = cache.path().join("linux-source-6.12.tar.xz");
        fs::write(&tarball, b"not a tarball").unwrap();
        let source = Source { tarball: Some(&tarball), version: None };
        let error = build(cache.path(), &source, &|_, _| {}).unwrap_err();
        assert!(matches!(error, LabError::Build { .. } | LabError::NoTool { .. }), "{error}");
        assert!(find(cache.path(), None).is_err());
        let left: Vec<_> = fs::read_dir(cache.path().join("kernel")).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| entry.path().extension().is_some_and(|e| e == "lock")), "{left:?}");
    }

    /// A source small enough to build in a test: the files that the patches change, and a Makefile
    /// that grants the whole configuration and takes half a second to compile.
    fn small_source(folder: &Path, linux: &str) -> PathBuf {
        let tree = folder.join("linux-source-6.12");
        for (file, text) in [
            (
                "arch/um/Kconfig",
                "config GENERIC_CALIBRATE_DELAY\n\tbool\n\tdefault y\n\nconfig HZ\n\tint\n\tdefault 100\n\nconfig NR_CPUS\n\tint\n\trange 1 1\n",
            ),
            ("arch/x86/um/user-offsets.c", "\n"),
            (
                "arch/um/os-Linux/util.c",
                "\t\t\texit(127);\n}\n\nssize_t os_getrandom(void *buf, size_t len, unsigned int flags)\n{\n\treturn getrandom(buf, len, flags);\n}\n\n/*\n * UML helper threads must not handle SIGWINCH/INT/TERM\n */\n",
            ),
            (
                "drivers/block/null_blk/main.c",
                "\n\tstruct request *rq = blk_mq_rq_from_pdu(cmd);\n\n\tif (!hrtimer_active(&nullb->bw_timer))\n\t\thrtimer_restart(&nullb->bw_timer);\n\n\tif (atomic_long_sub_return(blk_rq_bytes(rq), &nullb->cur_bytes) < 0) {\n\t\tblk_mq_stop_hw_queues(nullb->q);\n\t\t/* race with timer */\n\t\tif (atomic_long_read(&nullb->cur_bytes) > 0)\n\n\tstruct nullb *nullb = container_of(timer, struct nullb, bw_timer);\n\tktime_t timer_interval = ktime_set(0, TIMER_INTERVAL);\n\tunsigned int mbps = nullb->dev->mbps;\n\n\tif (atomic_long_read(&nullb->cur_bytes) == mb_per_tick(mbps))\n\t\treturn HRTIMER_NORESTART;\n\n\tatomic_long_set(&nullb->cur_bytes, mb_per_tick(mbps));\n\tblk_mq_start_stopped_hw_queues(nullb->q, true);\n\n\thrtimer_forward_now(&nullb->bw_timer, timer_interval);\n",
            ),
            (
                "Makefile",
                "allnoconfig:\n\tcp $(KCONFIG_ALLCONFIG) .config\nlinux:\n\tgrep -q 'default 1000' arch/um/Kconfig\n\tsleep 0.5\n\tLINUX\n\tmkdir -p include/config && echo 6.12.0 >include/config/kernel.release\n",
            ),
        ] {
            let file = tree.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text.replace("LINUX", linux)).unwrap();
        }
        let tarball = folder.join("linux-source-6.12.tar.xz");
        let tar = Command::new("tar").arg("cJf").arg(&tarball).arg("-C").arg(folder).arg("linux-source-6.12").status();
        assert!(tar.unwrap().success());
        tarball
    }

    #[test]
    fn two_builds_at_once_make_one_kernel() {
        let cache = tempfile::tempdir().unwrap();
        let tarball =
            small_source(cache.path(), "cp /bin/true linux; echo built >>$(dir $(KCONFIG_ALLCONFIG))../../builds");
        std::thread::scope(|scope| {
            let builds: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let source = Source { tarball: Some(&tarball), version: None };
                        build(cache.path(), &source, &|_, _| {}).map(|kernel| kernel.version)
                    })
                })
                .collect();
            for build in builds {
                assert_eq!(build.join().unwrap().unwrap(), "6.12.0");
            }
        });
        assert_eq!(fs::read_to_string(cache.path().join("builds")).unwrap(), "built\n", "the others waited");
        assert!(find(cache.path(), Some("6.12")).unwrap().executable.is_file());
    }

    #[test]
    fn a_kernel_of_another_version_than_was_asked_for_is_an_error() {
        let cache = tempfile::tempdir().unwrap();
        let tarball = small_source(cache.path(), "cp /bin/true linux");
        let error = build_from(cache.path(), tarball.clone(), Some("6.12.117"), &|_, _| {}).unwrap_err();
        assert!(error.to_string().contains("has version 6.12.0, not 6.12.117"), "{error}");
        assert_eq!(build_from(cache.path(), tarball, Some("6.12"), &|_, _| {}).unwrap().version, "6.12.0");
    }

    /// Root may write everywhere, so a lock that cannot be made stands for a read-only cache.
    #[test]
    fn a_kernel_that_is_built_needs_no_lock() {
        let cache = tempfile::tempdir().unwrap();
        let tarball = small_source(cache.path(), "cp /bin/true linux");
        let source = Source { tarball: Some(&tarball), version: None };
        let built = build(cache.path(), &source, &|_, _| {}).unwrap();
        let lock = built.executable.parent().unwrap().with_extension("lock");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        assert_eq!(build(cache.path(), &source, &|_, _| {}).unwrap().executable, built.executable);
    }

    #[test]
    fn the_name_of_a_source_may_have_a_colon() {
        let cache = tempfile::tempdir().unwrap();
        let tarball = cache.path().join("linux:6.12.tar.xz");
        fs::rename(small_source(cache.path(), "cp /bin/true linux"), &tarball).unwrap();
        let source = Source { tarball: Some(&tarball), version: None };
        assert_eq!(build(cache.path(), &source, &|_, _| {}).unwrap().version, "6.12.0");
    }

    #[test]
    fn a_failed_build_leaves_nothing_and_can_be_repeated() {
        let cache = tempfile::tempdir().unwrap();
        let tarball = small_source(cache.path(), "test -e ../../../fixed && cp /bin/true linux");
        let source = Source { tarball: Some(&tarball), version: None };
        assert!(matches!(build(cache.path(), &source, &|_, _| {}), Err(LabError::Build { doing: "compiling", .. })));
        assert!(find(cache.path(), None).is_err());
        fs::write(cache.path().join("fixed"), "").unwrap();
        // What a killed build leaves behind does not disturb the next.
        let name = format!("{}-{}.building", &sha256(&tarball).unwrap()[..12], recipe());
        fs::create_dir_all(cache.path().join("kernel").join(name).join("tree/half")).unwrap();
        assert!(build(cache.path(), &source, &|_, _| {}).is_ok());
        assert!(find(cache.path(), None).is_ok());
    }
}
