#compdef NAME
# zsh completion for NAME: source <(NAME completion zsh)
_crishim() {
	local reply value text
	local -a replies found
	replies=("${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
	for reply in $replies; do
		if [[ $reply == :files ]]; then
			_files
			continue
		fi
		value=${reply%%$'\t'*}
		text=
		[[ $reply == *$'\t'* ]] && text=":${reply#*$'\t'}"
		value=${value//\\/\\\\} # backslashes and colons are _describe's own; compadd quotes the rest
		[[ -n $value ]] && found+=("${value//:/\\:}$text")
	done
	_describe NAME found
}
compdef _crishim NAME
