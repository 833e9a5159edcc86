# Becomes the far end: runs a fullpipe of the client's protocol, which it finds here or receives from the client.
#
# Arguments: the name under which the client's program is kept, the client's protocol, whether the program may be
# received (yes or no), and the arguments of the far end.
#
# The client's login shell reads this as one line in single quotes, and login shells differ: no single quote, exclamation
# mark or backslash may stand here, each line must be complete with its semicolon, and a comment takes a whole line.

n=$1; k=$2; m=$3; shift 3;
fits() { [ "$("$1" far --speaks "$k" 2>/dev/null </dev/null)" = "fullpipe $k" ]; };
if fits fullpipe; then exec fullpipe far "$@"; fi;

# Programs are kept in folders of this user that nobody else may enter. Each is checked from within, so that it cannot be
# exchanged for another one between the check and the use.
w=$PWD; u=$(id -u);
a=${HOME:-/dev/null}/.cache/fullpipe/bin; b=${XDG_RUNTIME_DIR:-/dev/null}/fullpipe; c=/tmp/fullpipe-$u;
# A folder may have the setgid bit of the one that it is in.
own() { [ -n "$(find "$1" -prune -user "$u" -type "$2" "(" -perm 700 -o -perm 2700 ")" 2>/dev/null)" ]; };
enter() { own "$1" d && cd "$1" && own . d; };
for d in "$a" "$b" "$c"; do
if enter "$d" && own "$n" f && fits "./$n"; then exec "./$n" far --base "$w" "$@"; fi;
done;
if [ "$m" = no ]; then echo "fullpipe is not there" >&2; exit 127; fi;

# What the client has sent already is dropped up to its answer, which tells the size and the SHA-256.
echo; echo "fullpipe-wanted $n $(uname -s) $(uname -m)";
g=; while [ -z "$g" ] && IFS= read -r l; do case $l in "fullpipe-comes "*) g=$l;; esac; done;
if [ -z "$g" ]; then echo "fullpipe is not there" >&2; exit 127; fi;
h=${g##* }; z=${g#* }; z=${z%% *};
for f in find head sha256sum; do
if [ -z "$(command -v $f)" ]; then echo "there is no $f, which receiving a program takes" >&2; exit 126; fi;
done;

# An empty program shows whether a folder lets programs run, and zeros whether it has room.
t=.$n.$$; p=;
for d in "$a" "$b" "$c"; do
mkdir -p -m 700 "$d";
if enter "$d"; then
if true >"$t" && chmod 700 "$t" && "./$t" && head -c "$z" /dev/zero >"$t"; then p=$d; break; fi;
rm -f "$t";
fi;
done 2>/dev/null;
if [ -z "$p" ]; then echo "no folder takes the program: one of $a, $b, $c must belong to the login user, be closed to others (mode 700), let programs run, and have room" >&2; exit 126; fi;
head -c "$z" >"$t";
if [ "$(sha256sum <"$t")" = "$h  -" ]; then sync "$t" 2>/dev/null; mv -f "$t" "$n"; else rm -f "$t"; echo "the program did not arrive whole in $p; is its disk full?" >&2; exit 126; fi;
ls -t | grep "^fullpipe-" | tail -n +4 | while read -r f; do rm -f "$f"; done;
find . -name ".fullpipe-*" -mtime +0 -exec rm -f {} + 2>/dev/null;
if fits "./$n"; then exec "./$n" far --base "$w" "$@"; fi;
e=$("./$n" far --speaks "$k" 2>&1 </dev/null); x=$?; rm -f "$n"; o=;
if [ $x = 0 ]; then echo "the program that was sent is not this version of fullpipe; check --far-binary" >&2; exit 126; fi;
case $e in *GLIBC*|*"ot found"*|*"o such file"*) o="its C library is older or another one, so give a static fullpipe with --far-binary, as make dist makes it:";; esac;
echo "the program that was sent cannot run there (status $x): $o" $e >&2; exit 126;
