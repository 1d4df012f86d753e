
# Splits a line as the shell does. Sets `words`, and `quote` to the quotation mark that is still open.
_starhop_split() {
    local line=$1 word='' begun='' char at
    words=() quote=''
    for ((at = 0; at < ${#line}; at++)); do
        char=${line:at:1}
        if [[ $char == "\\" && $quote != "'" ]]; then
            [[ $quote == '"' && ${line:at+1:1} != [\$\`\"\\] ]] && word+=$char
            ((at += 1))
            word+=${line:at:1} begun=1
        elif [[ -n $quote ]]; then
            if [[ $char == "$quote" ]]; then quote=''; else word+=$char; fi
        elif [[ $char == [\'\"] ]]; then
            quote=$char begun=1
        elif [[ $char == [[:blank:]] ]]; then
            [[ -z $begun ]] || words+=("$word")
            word='' begun=''
        else
            word+=$char begun=1
        fi
    done
    words+=("$word")
}

# Names that the source of the command line offers, for `starhop get` and `starhop ls`.
_starhop_or_names() {
    local words quote names name
    _starhop_split "${COMP_LINE:0:COMP_POINT}"
    mapfile -t names < <("${words[0]}" names "${words[@]:1}" 2>/dev/null)
    if [[ ${#names[@]} -eq 0 ]]; then
        _starhop "$@"
        return
    fi
    COMPREPLY=()
    for name in "${names[@]}"; do
        # The shell puts the rest behind a mark that is open, and closes it.
        case $quote in
            "'") name=${name//\'/\'\\\'\'} ;;
            '"') name=$(sed 's/[$`"\\]/\\&/g' <<<"$name") ;;
            *) printf -v name %q "$name" ;;
        esac
        COMPREPLY+=("$name")
    done
}
complete -F _starhop_or_names -o bashdefault -o default starhop
