
# Names that the source of the command line offers, for `starhop get` and `starhop ls`.
_starhop_or_names() {
    local line=${COMP_LINE:0:COMP_POINT} words names
    read -ra words <<<"$line"
    [[ $line == *' ' ]] && words+=("")
    mapfile -t names < <("${words[0]}" names "${words[@]:1}" 2>/dev/null)
    if [[ ${#names[@]} -gt 0 ]]; then
        mapfile -t COMPREPLY < <(printf '%q\n' "${names[@]}")
    else
        _starhop "$@"
    fi
}
complete -F _starhop_or_names -o bashdefault -o default starhop
