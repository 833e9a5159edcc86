# What scripts/check and scripts/lint share. They source it, in the folder of the repository, with `cargo` and `python` set.

# Ends with a message if this Rust has no clippy.
need_clippy() {
    $cargo clippy --version >/dev/null 2>&1 && return
    echo "error: this Rust has no clippy; install it, for example with: rustup component add clippy rustfmt" >&2
    exit 3
}

# Checks format and rules of every Python file, with ruff.
check_ruff() {
    local programs
    mapfile -t programs < <(grep -ls '^#!.*python3$' scripts/* bench/*)
    (cd python && $python -m ruff format --check --quiet . && $python -m ruff check --quiet .)
    $python -m ruff format --config python/pyproject.toml --check --quiet lab bench packaging docs/conf.py "${programs[@]}"
    $python -m ruff check --config python/pyproject.toml --quiet lab bench packaging docs/conf.py "${programs[@]}"
}
