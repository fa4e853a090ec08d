# make release and make archive in a clone; versions and dates of all files are those of VERSION and CHANGELOG.md
# (share/release.sh).
# shellcheck shell=bash
load common

# clone: the project's last commit with this tree's files of a release, and something to release in its changelog.
clone() {
    git -C "$SPX_ROOT" rev-parse HEAD >/dev/null 2>&1 || skip "not a git repository"
    git clone -q "$SPX_ROOT" clone 2>/dev/null || skip "cannot be cloned"
    (cd "$SPX_ROOT" && cp Makefile VERSION CHANGELOG.md CITATION.cff codemeta.json "$OLDPWD/clone" &&
        cp share/release.sh "$OLDPWD/clone/share")
    cd clone || return
    sed -i '0,/^## Unreleased$/s//&\n\n- `programs`: an entry/' CHANGELOG.md
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
    export SOURCE_DATE_EPOCH=4102444800 # 2100-01-01
    commit
}

commit() { git add -A && git commit -q -m 'test: commit'; }

# house WORD...: make of the clone, without what the make that runs the tests was told.
house() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u BUILD -u DRY make -s --no-print-directory "$@"; }

# refused PATTERN [VERSION]: the release is, and changes neither files nor history.
refused() {
    local head changes
    head=$(git rev-parse HEAD) changes=$(git status --porcelain)
    run ! env -u BUILD -u DRY share/release.sh release "${2:-999.0.1}"
    # shellcheck disable=SC2053 # a pattern
    [[ $output == $1 ]]
    [ "$(git rev-parse HEAD)" = "$head" ]
    [ "$(git status --porcelain)" = "$changes" ]
    [ -z "$(git tag -l 'v999*')" ]
}

@test "version and date: CITATION.cff and codemeta.json have those of VERSION and CHANGELOG.md" {
    local version day
    need_program python3
    version=$(cat "$SPX_ROOT/VERSION")
    day=$(sed -n "s/^## $version (\(.*\))$/\1/p" "$SPX_ROOT/CHANGELOG.md")
    grep -qx "version: $version" "$SPX_ROOT/CITATION.cff"
    grep -qx "date-released: \"$day\"" "$SPX_ROOT/CITATION.cff"
    run -0 python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(j["version"], j["dateModified"])' \
        "$SPX_ROOT/codemeta.json"
    [ "$output" = "$version $day" ]
}

@test "release: files, commit, tag, and an archive of the same bytes twice" {
    clone
    local before sum
    before=$(git rev-parse HEAD)

    # said only
    run -0 house release VERSION=999.0.1 DRY=1
    [[ $output == *"-> 999.0.1 (2100-01-01)"*"tag v999.0.1"*"build/release/specpipe-999.0.1.tar.gz"* ]]
    [ "$(git rev-parse HEAD)" = "$before" ]
    [ -z "$(git status --porcelain)$(git tag -l 'v999*')" ]
    [ ! -e build ]

    house release VERSION=999.0.1
    [ -z "$(git status --porcelain)" ]
    [ "$(git rev-parse HEAD~)" = "$before" ]
    [ "$(git rev-parse 'v999.0.1^{commit}')" = "$(git rev-parse HEAD)" ]
    git diff --name-only HEAD~ | LC_ALL=C sort >changed
    diff changed - <<<$'CHANGELOG.md\nCITATION.cff\nVERSION\ncodemeta.json'
    rm changed
    [ "$(cat VERSION)" = 999.0.1 ]
    grep -qx 'version: 999.0.1' CITATION.cff
    grep -qx 'date-released: "2100-01-01"' CITATION.cff
    grep -qx '  "version": "999.0.1",' codemeta.json
    grep -qx '  "dateModified": "2100-01-01",' codemeta.json
    # the entries are under the new heading, and the next ones have a place
    [ "$(sed -n '/^## Unreleased/,/^- /p' CHANGELOG.md | grep -v '^$' | xargs -d '\n' printf '%s|')" = \
        '## Unreleased|## 999.0.1 (2100-01-01)|- `programs`: an entry|' ]

    (cd build/release && sha256sum -c --quiet SHA256SUMS)
    sum=$(cat build/release/SHA256SUMS)
    mkdir out
    tar -xzf build/release/specpipe-999.0.1.tar.gz -C out
    [ "$(cat out/specpipe-999.0.1/VERSION)" = 999.0.1 ]
    [ "$(cd out/specpipe-999.0.1 && find . ! -type d | sort)" = "$(git ls-tree -r --name-only HEAD | sed 's|^|./|' | sort)" ]

    # again from the tag, later, with another mask of modes and with a later commit
    rm -r build out
    git config tar.umask user
    git commit -q --allow-empty -m 'test: later'
    (umask 077 && house archive VERSION=999.0.1)
    [ "$(cat build/release/SHA256SUMS)" = "$sum" ]
}

@test "release: refused where the tree, the changelog or the version is not ready" {
    clone
    run ! house release
    [[ $output == *"VERSION=x.y.z"* ]]
    refused "*not above*" 0.0.1
    refused "*not above*" "$(cat VERSION)"
    refused "*MAJOR.MINOR.PATCH*" 999.1
    refused "*MAJOR.MINOR.PATCH*" 999.01.0
    run ! house archive VERSION=999.0.1
    [[ $output == *"no tag v999.0.1"* ]]
    echo new >note
    refused "*not clean*note*"
    rm note
    # a file that a release cannot write its version to: the others are put back
    sed -i '/"dateModified"/d' codemeta.json
    commit
    refused "*codemeta.json has not one line*"
    git reset -q --hard HEAD~
    # no entry above the last release
    sed -i '/^## Unreleased$/a\\n## 998.0.0 (2099-01-01)' CHANGELOG.md
    commit
    refused "*no entry*"
}
