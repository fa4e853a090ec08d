#!/usr/bin/env bash
# Provides a release, or the archive of one (make release, make archive; CONTRIBUTING.md, "Versions and releases"):
#
#     share/release.sh release VERSION     changelog, version and date in all files, commit, tag, archive, checksums
#     share/release.sh archive VERSION     archive and checksums of a release that is tagged
#
# VERSION is the file that everything else takes its version from; CITATION.cff and codemeta.json are copies, which only
# this script writes. Environment: DRY=1 checks and says what would be done; BUILD; SOURCE_DATE_EPOCH, in place of now.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

fail() {
    printf 'release: %s\n' "$*" >&2
    exit 1
}

[ $# = 2 ] || fail "share/release.sh release|archive VERSION"
action=$1
new=$2
tag=v$new
number='(0|[1-9][0-9]*)'
out=${BUILD:-build}/release
files=(VERSION CITATION.cff codemeta.json CHANGELOG.md)
[[ $new =~ ^$number\.$number\.$number$ ]] || fail "version '$new': MAJOR.MINOR.PATCH"
[ -e .git ] || fail "not a git repository"

# Same bytes from the same tag: owners, modes, order and times are git's, and gzip -n writes neither name nor time.
archive() {
    local name=specpipe-$new
    mkdir -p "$out" || fail "$out cannot be made"
    if ! git -c tar.umask=0022 -c core.autocrlf=false archive --format=tar --prefix="$name/" "$tag" |
        gzip -9n >"$out/$name.tar.gz.part"; then
        rm -f "$out/$name.tar.gz.part"
        fail "$out/$name.tar.gz could not be written: then make archive VERSION=$new"
    fi
    mv "$out/$name.tar.gz.part" "$out/$name.tar.gz" || fail "$out/$name.tar.gz cannot be written"
    (cd "$out" && sha256sum "$name.tar.gz" >SHA256SUMS) || fail "$out/SHA256SUMS cannot be written"
    echo "$out/$name.tar.gz"
    echo "$out/SHA256SUMS"
}

tagged() { git rev-parse -q --verify "refs/tags/$tag^{commit}" >/dev/null; }

case $action in
archive)
    tagged || fail "no tag $tag"
    archive
    exit
    ;;
release) ;;
*) fail "$action: release or archive" ;;
esac

old=$(cat VERSION)
if [ "$new" = "$old" ] || [ "$(printf '%s\n' "$old" "$new" | sort -V | tail -n 1)" != "$new" ]; then
    fail "version $new is not above $old (VERSION)"
fi
changes=$(git status --porcelain) || fail "git status failed"
[ -z "$changes" ] || fail "the tree is not clean: commit or remove"$'\n'"$changes"
! tagged || fail "tag $tag is there already"
# Entries of the section, up to the next heading.
entries=$(awk '/^## / { on = $0 == "## Unreleased" } on && /^- / { n++ } END { print n + 0 }' CHANGELOG.md)
[ "$entries" -gt 0 ] || fail "CHANGELOG.md has no entry under '## Unreleased'"
git var GIT_COMMITTER_IDENT >/dev/null || fail "git does not know who commits: git config user.name, user.email"
day=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%F) || fail "SOURCE_DATE_EPOCH is no time"

if [ -n "${DRY:-}" ]; then
    echo "$old -> $new ($day) in ${files[*]}"
    echo "changelog: $entries entries under '## $new ($day)'"
    echo "commit 'release: $new' on $(git rev-parse --abbrev-ref HEAD), tag $tag"
    echo "$out/specpipe-$new.tar.gz"
    echo "$out/SHA256SUMS"
    exit
fi

# Until the commit, a failure leaves the files as they were: the tree was clean.
trap 'git reset -q -- "${files[@]}"; git checkout -q -- "${files[@]}"' EXIT
trap 'exit 1' HUP INT TERM

# set_line FILE PATTERN LINE: the one line that matches becomes LINE.
set_line() {
    [ "$(grep -c "$2" "$1")" = 1 ] || fail "$1 has not one line $2"
    sed -i "/$2/s/.*/$3/" "$1" || fail "$1 cannot be written"
}

echo "$new" >VERSION || fail "VERSION cannot be written"
set_line CITATION.cff '^version: ' "version: $new"
set_line CITATION.cff '^date-released: ' "date-released: \"$day\""
set_line codemeta.json '^  "version": ' "  \"version\": \"$new\","
set_line codemeta.json '^  "dateModified": ' "  \"dateModified\": \"$day\","
set_line CHANGELOG.md '^## Unreleased$' "## Unreleased\n\n## $new ($day)"
git commit -q -m "release: $new" -- "${files[@]}" || fail "git commit failed: nothing is changed"
trap - EXIT
git tag -a -m "specpipe $new" "$tag" || fail "committed, but not tagged: git tag -a $tag, then make archive VERSION=$new"
archive
echo "released $new: look at it (git show $tag), then git push --follow-tags"
