# The scripts of the version matrix source this file after common.sh.
#
# MATRIX   chroots of newer Debian suites, and the files built for their servers

MATRIX=$TARGET/matrix
MAJORS=(17 18 19)

# suite_of MAJOR: prints the Debian suite that has this server.
suite_of() {
    case $1 in
    15) echo bookworm ;;
    17) echo trixie ;;
    18) echo sid ;;
    19) echo experimental ;;
    *) die "PostgreSQL $1 is in no Debian suite known here" ;;
    esac
}

# find_mirror: prints the archive from which this machine installs packages.
find_mirror() {
    local codename mirror=${ROWSOURCE_MIRROR:-}
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
        awk -v codename="$codename" '$1 == codename && $2 == "main" { print $3; exit }')
    [ -n "$mirror" ] || die "no Debian mirror in this machine's apt configuration: name one in ROWSOURCE_MIRROR"
    echo "$mirror"
}

# reach MIRROR SUITE LOG: fails unless apt can reach the archive.
reach() {
    local probe
    probe=$(mktemp)
    if ! /usr/lib/apt/apt-helper -o Acquire::Retries=2 -o Acquire::http::Timeout=20 download-file \
        "$1/dists/$2/InRelease" "$probe" >>"$3" 2>&1; then
        rm -f "$probe"
        die "the mirror $1 cannot be reached for suite $2: $(grep '^E:' "$3" | head -n 1)"
    fi
    rm -f "$probe"
}

# in_chroot DIR COMMAND...: runs the command in this chroot.
in_chroot() { ROWSOURCE_INSIDE=$1 "$ROOT/scripts/in-chroot.sh" "${@:2}"; }
