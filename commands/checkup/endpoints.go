package checkup

import (
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// Endpoints turns what the resolver tried into findings. Places where
// nothing is are no finding; a node has one runtime, not eight.
func Endpoints(attempts []client.Attempt) []output.Finding {
	var out []output.Finding
	for _, a := range attempts {
		check := "endpoint " + a.Endpoint
		switch a.State {
		case client.StateAbsent, client.StateNotTried:
			if a.Chosen {
				out = append(out, failed(check, a.Detail, a.Hint()))
			}
		case client.StateReady:
			detail := a.Detail
			if a.Chosen {
				detail += ", the one that is used"
			}
			out = append(out, ok(check, detail))
		case client.StateDockersOwn, client.StateNoCRI:
			out = append(out, ok(check, a.Name+": "+a.Detail))
		default:
			out = append(out, warn(check, a.Name+": "+a.State+", "+a.Detail, a.Hint()))
		}
	}
	return out
}
