#!/usr/bin/env bash
# Checks the packages that `cargo xtask dist` has made: checksums, archive, Debian package, units, man pages, image, manifest of krew.
#
#   scripts/packages.sh FOLDER            FOLDER has the packages (target/dist)
#   CLEAN=1 scripts/packages.sh FOLDER    installs the Debian package on a fresh Debian made by debootstrap, as root
#
# What needs a tool that is not installed is skipped, which it says: mandoc, systemd, skopeo, umoci, debootstrap, kubectl.
set -euo pipefail
folder=$(cd "${1:?name the folder of the packages}" && pwd)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
passed() { printf 'ok  %s\n' "$*"; }
has() {
    for tool; do
        command -v "$tool" >/dev/null 2>&1 || { echo "SKIPPED: $tool is not installed"; return 1; }
    done
}

checksums() {
    (cd "$folder" && sha256sum --quiet -c SHA256SUMS) || fail "a file is not what SHA256SUMS says"
    local listed present
    listed=$(wc -l <"$folder/SHA256SUMS") present=$(find "$folder" -maxdepth 1 -type f ! -name SHA256SUMS | wc -l)
    [[ $listed == "$present" ]] || fail "SHA256SUMS has $listed files of $present"
    passed "checksums of $listed files"
}

# The program of the archive runs; owners and times say nothing about the machine that built it.
archive() {
    local archive
    archive=$(echo "$folder"/skopos-*-linux-*.tar.gz)
    tar -xzf "$archive" -C "$work"
    unpacked=$(echo "$work"/skopos-*-linux-*)
    "$unpacked/skopos" --version | grep -Eq '^skopos [0-9]' || fail "the program of the archive does not run"
    [[ $(tar -tvzf "$archive" --numeric-owner | awk '{print $2}' | sort -u) == 0/0 ]] || fail "files of the archive do not belong to root"
    [[ $(tar -tvzf "$archive" | awk '{print $4 $5}' | sort -u | wc -l) == 1 ]] || fail "files of the archive have more than one time"
    ! strings -a "$unpacked/skopos" 2>/dev/null | grep -Eq "(/root|/home/[a-z]+)/" || echo "warning: the program has names of folders of the machine that built it"
    passed "archive: $("$unpacked/skopos" --version), $(stat -c %s "$unpacked/skopos") bytes unpacked"
}

krew() {
    local manifest=$folder/krew-skopos.yaml archive
    archive=$(basename "$folder"/skopos-*-linux-*.tar.gz)
    grep -q "\"sha256\": \"$(sha256sum "$folder/$archive" | cut -d' ' -f1)\"" "$manifest" || fail "krew's manifest has another checksum"
    grep -q "/$archive\"" "$manifest" || fail "krew's manifest has another archive"
    # krew links kubectl-NAME to the program.
    mkdir -p "$work/krew" && ln -sf "$unpacked/skopos" "$work/krew/kubectl-skopos"
    "$work/krew/kubectl-skopos" status --help | grep -q 'Usage: kubectl skopos status' || fail "the plugin's usage does not say kubectl skopos"
    if has kubectl; then
        PATH=$work/krew:$PATH kubectl skopos --version | grep -q '^skopos' || fail "kubectl skopos does not run"
        PATH=$work/krew:$PATH kubectl plugin list 2>/dev/null | grep -q kubectl-skopos || fail "kubectl does not list the plugin"
    fi
    passed "krew: manifest, and kubectl skopos"
}

man_pages() {
    has mandoc || return 0
    local page problems
    for page in "$unpacked"/man/*.1; do
        # Spacing is clap_mangen's, and there is no date, because the same source gives the same bytes: both are warnings.
        problems=$(mandoc -Tlint -Werror "$page" 2>&1 || true)
        [[ -z $problems ]] || fail "$page: $problems"
    done
    passed "man pages: $(ls "$unpacked/man" | wc -l)"
}

completions() {
    bash -n "$unpacked/completions/skopos.bash" || fail "the completion of bash does not parse"
    bash -c "source '$unpacked/completions/skopos.bash' && complete -p skopos" >/dev/null || fail "bash has no completion"
    passed "completion of bash"
}

debian_package() {
    local deb
    has dpkg-deb || return 0
    deb=$(echo "$folder"/skopos_*.deb)
    dpkg-deb --info "$deb" >"$work/info" || fail "dpkg-deb does not read the package"
    dpkg-deb --extract "$deb" "$work/deb"
    for path in usr/bin/skopos usr/bin/kubectl-skopos usr/share/man/man1/skopos-serve.1.gz lib/systemd/system/skopos-serve.service \
        lib/systemd/system/skopos-notify.service usr/share/doc/skopos/copyright usr/share/doc/skopos/examples/gateway.yaml usr/share/doc/skopos/skopos.cdx.json; do
        [[ -e $work/deb/$path ]] || fail "the Debian package lacks $path"
    done
    dpkg-deb --control "$deb" "$work/control"
    for script in postinst prerm postrm; do
        sh -n "$work/control/$script" || fail "$script does not parse"
    done
    passed "Debian package: $(grep -c . "$work/info") lines of control, $(dpkg-deb --contents "$deb" | wc -l) files"
}

units() {
    has systemd-analyze || return 0
    local unit checked=$work/units
    mkdir -p "$checked"
    for unit in skopos-serve skopos-notify; do
        sed "s#/usr/bin/skopos#$work/deb/usr/bin/skopos#" "$work/deb/lib/systemd/system/$unit.service" >"$checked/$unit.service"
        local problems
        problems=$(systemd-analyze verify --man=no "$checked/$unit.service" 2>&1 | grep "$unit" || true)
        [[ -z $problems ]] || fail "$unit: $problems"
        systemd-analyze security --offline=true --threshold=25 "$checked/$unit.service" >"$work/score" 2>&1 || fail "$unit: exposure above 2.5: $(tail -1 "$work/score")"
        passed "unit: $(tail -1 "$work/score" | sed 's/[^ -~]//g')"
    done
}

# The image holds what it says, and a static program runs in its files alone, as its user, where nothing can be written.
image() {
    local image layout=$work/image
    image=$(echo "$folder"/skopos-*-image-*.tar)
    if has skopeo; then
        skopeo inspect --config "oci-archive:$image" >"$work/config.json" || fail "skopeo does not read the image"
        grep -q '65532:65532' "$work/config.json" || fail "the image does not run as a numeric user"
        passed "image: skopeo reads it, $(stat -c %s "$image") bytes"
    fi
    has umoci || return 0
    mkdir -p "$layout" && tar -xf "$image" -C "$layout"
    umoci unpack --image "$layout:$(version)" "$work/bundle" >/dev/null 2>&1 || fail "umoci does not unpack the image"
    local root=$work/bundle/rootfs
    [[ $(stat -c '%u %a' "$root/var/lib/skopos") == "65532 700" ]] || fail "the folder of the state is not the user's"
    openssl_count=$(grep -c BEGIN "$root/etc/ssl/certs/ca-certificates.crt")
    ((openssl_count > 100)) || fail "the image has $openssl_count authorities only"
    if ldd "$root/usr/bin/skopos" 2>&1 | grep -Eq 'not a dynamic|statically linked'; then
        [[ $(id -u) == 0 ]] || { echo "SKIPPED: only root can run the program in the image's files"; return 0; }
        local run=(chroot --userspec=65532:65532 "$root" /usr/bin/skopos)
        mkdir -p "$root/proc" && mount -t proc proc "$root/proc"
        "${run[@]}" demo --once >"$work/demo" 2>&1 || { umount "$root/proc"; tail -5 "$work/demo"; fail "the demo fails in the image's files"; }
        umount "$root/proc"
        "${run[@]}" --version >/dev/null || fail "the program needs /proc"
        passed "image: skopos demo --once in its files alone, as user 65532"
    else
        echo "SKIPPED: the program is not static, so it does not run in the image's files"
    fi
}

version() { "$unpacked/skopos" --version | cut -d' ' -f2; }

# A fresh Debian: the package installs, the plugin works, the units are whole, and removal leaves nothing.
clean_debian() {
    [[ ${CLEAN:-} == 1 ]] || return 0
    has debootstrap || return 0
    local root=$work/debian mirror
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '$1 == "URIs:" || $1 == "deb" && $2 !~ /^\[/ {print $2; exit}' || true)
    debootstrap --variant=minbase --include=systemd,man-db "$(. /etc/os-release; echo "$VERSION_CODENAME")" "$root" "$mirror" >"$work/debootstrap" 2>&1 ||
        { tail -3 "$work/debootstrap"; echo "SKIPPED: debootstrap could not make a Debian"; return 0; }
    cp "$folder"/skopos_*.deb "$root/tmp/"
    chroot "$root" sh -c 'dpkg -i /tmp/skopos_*.deb' >"$work/dpkg" 2>&1 || { cat "$work/dpkg"; fail "the package does not install"; }
    chroot "$root" skopos --version >/dev/null || fail "the installed program does not run"
    [[ $(stat -c '%a' "$root/etc/skopos") == 750 ]] || fail "/etc/skopos is open to all"
    chroot "$root" getent group skopos >/dev/null || fail "there is no group skopos"
    chroot "$root" systemd-analyze verify skopos-serve.service skopos-notify.service 2>"$work/verify" || true
    ! grep skopos "$work/verify" || fail "the installed units are not whole"
    chroot "$root" skopos demo --once >"$work/demo" 2>&1 || { tail -5 "$work/demo"; fail "the demo fails"; }
    if has kubectl; then
        cp "$(command -v kubectl)" "$root/usr/local/bin/" && chroot "$root" kubectl skopos --version >/dev/null || fail "kubectl skopos does not run"
    fi
    chroot "$root" dpkg --purge skopos >"$work/dpkg" 2>&1 || { cat "$work/dpkg"; fail "the package cannot be removed"; }
    [[ -z $(find "$root/usr/bin" "$root/usr/lib/systemd" "$root/etc/skopos" "$root/usr/share/doc/skopos" -name '*skopos*' 2>/dev/null) ]] || fail "files are left"
    passed "a fresh Debian: installed, run, and removed without a trace"
}

checksums
archive
krew
man_pages
completions
debian_package
units
image
clean_debian
echo "the packages are whole"
