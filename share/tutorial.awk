# awk -f tutorial.awk README.md: the tutorial's commands, `$ COMMAND` on one line each, and below each what it prints.
# A comment <!-- picture FILE | CAPTION | COMMAND --> is the command `COMMAND -o FILE`; without a command, site.sh has the file.
/^## / { inside = /^## Tutorial/ }
!inside { next }
/^<!-- picture / {
    sub(/^<!-- picture /, "")
    sub(/ -->$/, "")
    if (split($0, part, / \| /) == 3)
        print "$ " part[3] " -o " part[1]
    next
}
sub(/^    /, "") {
    line = line $0
    if (sub(/\\$/, "", line))
        next
    print line
    line = ""
}
