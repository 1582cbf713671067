#!/usr/bin/env bash
# Makes this checkout ready to run: a virtual environment in .venv with exactly the packages of requirements.lock,
# Millpond itself installed editable, a Java runtime for Spark, and what the tests and benchmarks drive: a browser and a
# load generator.
#
# Safe to run again and again: Python packages are touched only when the lock, pyproject.toml or this script changed
# since the last run (a digest of them is kept in .venv). System packages are installed only as root on Debian and its
# kin, and only what is missing; elsewhere it says what to install.
#
# Settings: PYTHON   the interpreter to build .venv from (default: python3.11, python3.12 or python3, first that fits)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
STAMP=$VENV/.millpond-setup
JAVA_MINIMUM=17 # the oldest that Spark 4 runs on

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$1"
    shift
    for hint in "$@"; do printf '       %s\n' "$hint" >&2; done
    exit 1
}

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

APT_IS_FRESH=
# apt_install PACKAGE...: quiet unless it fails; false if it fails.
apt_install() {
    local log
    log=$(mktemp)
    say "installing $* with apt-get"
    if { [ -n "$APT_IS_FRESH" ] || apt-get update -qq; } >"$log" 2>&1 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1; then
        APT_IS_FRESH=yes
        rm -f "$log"
    else
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

# --- Java ------------------------------------------------------------------------------------------------------------

# Where Spark will look for it: JAVA_HOME first, then the path.
find_java() {
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
        echo "$JAVA_HOME/bin/java"
    else
        command -v java
    fi
}

java_major() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }

ensure_java() {
    local java major
    if ! java=$(find_java); then
        may_install || die "Spark needs Java $JAVA_MINIMUM or newer, and there is no java here." \
            "Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless" \
            "Fedora:          sudo dnf install java-17-openjdk-headless" \
            "macOS:           brew install openjdk@17   (then set JAVA_HOME as brew says)"
        # Newer Debians no longer carry 17; their default is one that Spark runs on as well.
        apt_install openjdk-17-jre-headless || apt_install default-jre-headless ||
            die "Java could not be installed: the output of apt-get is above."
        java=$(find_java) || die "Java was installed, but java is not on the path."
    fi
    major=$(java_major "$java")
    [ "${major:-0}" -ge "$JAVA_MINIMUM" ] ||
        die "Spark needs Java $JAVA_MINIMUM or newer; $java is version ${major:-unknown}." \
            "Install a newer one, or point JAVA_HOME at it."
}

# --- What only tests and benchmarks need ----------------------------------------------------------------------------

# Whoever is missing them can do everything else, so their absence is said and not an error.
ensure_tools() {
    local missing=()
    command -v chromium >/dev/null || missing+=(chromium) # the console's tests
    command -v wrk >/dev/null || missing+=(wrk)           # the benchmark of single events
    [ ${#missing[@]} -gt 0 ] || return 0
    if may_install && apt_install "${missing[@]}"; then return 0; fi
    say "missing, for tests and benchmarks only: ${missing[*]}"
    printf '       Debian, Ubuntu:  sudo apt-get install %s\n' "${missing[*]}" >&2
}

# --- Python ----------------------------------------------------------------------------------------------------------

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
        if fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

create_venv() {
    local python
    if ! python=$(find_python); then
        [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not a Python 3.11 or 3.12."
        { may_install && apt_install python3 python3-venv && python=$(find_python); } ||
            die "Millpond needs Python 3.11 or 3.12, and neither is on the path." \
                "Install one, or name it: make setup PYTHON=/path/to/python3.11"
    fi
    # Debian packs the part of Python that builds environments separately.
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        { may_install && apt_install "$(basename "$(readlink -f "$python")")-venv"; } ||
            die "$python cannot build virtual environments: its module ensurepip is missing." \
                "Debian, Ubuntu:  sudo apt-get install python3-venv"
    fi
    say "creating $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
}

# uv installs everything else, so pip installs uv: the version and the hashes that the lock gives for it.
install_uv() {
    local wanted stanza
    wanted=$(sed -n 's/^uv==\([^ ;]*\).*/\1/p' requirements.lock)
    [ -n "$wanted" ] || die "requirements.lock does not name uv." "Add it to the dev extra and run: make lock"
    if [ "$("$VENV/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" != "$wanted" ]; then
        say "installing uv $wanted"
        stanza=$(mktemp)
        awk '/^[^ #]/ { on = /^uv==/ } on' requirements.lock >"$stanza"
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$stanza"
        rm -f "$stanza"
    fi
}

digest() { cat requirements.lock pyproject.toml scripts/setup.sh | "$VENV/bin/python" -c \
    'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read() + sys.version.encode()).hexdigest())'; }

ensure_packages() {
    if [ ! -x "$VENV/bin/python" ]; then
        create_venv
    elif ! fits "$VENV/bin/python"; then
        die "$VENV was built with a Python that is gone or is not 3.11 or 3.12." "Start afresh: rm -rf $VENV && make setup"
    fi
    if [ "$(cat "$STAMP" 2>/dev/null)" = "$(digest)" ]; then return; fi
    rm -f "$STAMP"
    install_uv
    say "installing the packages of requirements.lock (a few minutes the first time: Spark alone is 400 MB)"
    local uv=("$VENV/bin/uv" --quiet pip)
    export VIRTUAL_ENV=$PWD/$VENV
    "${uv[@]}" sync --require-hashes requirements.lock
    "${uv[@]}" install --no-deps --no-build-isolation --editable .
    digest >"$STAMP"
    say "ready"
}

ensure_java
ensure_tools
ensure_packages
