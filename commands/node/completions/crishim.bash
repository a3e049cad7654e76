# bash completion for NAME: eval "$(NAME completion bash)"
_crishim() {
	local reply
	COMPREPLY=()
	# The answers are quoted for the line already, without what bash does not replace.
	while IFS= read -r reply; do
		if [[ $reply == :files ]]; then
			compopt -o default 2>/dev/null
			continue
		fi
		COMPREPLY+=("$reply")
	done < <("${COMP_WORDS[0]}" __complete-bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -F _crishim NAME
