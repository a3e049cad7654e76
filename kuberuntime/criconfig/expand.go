package criconfig

import "strings"

// Expand replaces $(NAME) by its value. $$ stands for one $, and a name that lookup does
// not know stays as it is written.
func Expand(s string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		case '$':
			out.WriteByte('$')
			s = s[2:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				out.WriteString("$(")
				s = s[2:]
				continue
			}
			if value, known := lookup(s[2:end]); known {
				out.WriteString(value)
			} else {
				out.WriteString(s[:end+1])
			}
			s = s[end+1:]
		default:
			out.WriteString(s[:2])
			s = s[2:]
		}
	}
}
