package shim

import (
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// defaultProfile is how long a CPU profile takes where nobody says.
const defaultProfile = 30

// profile serves Go's profiles in the form that "go tool pprof URL" reads. The
// standard library's own handler would bring a template engine along, and
// registers itself where nobody asked.
func profile(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("name") == "profile" {
		cpuProfile(w, r)
		return
	}
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		http.NotFound(w, r)
		return
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err != nil {
		debug = 0
	}
	if err := p.WriteTo(w, debug); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func cpuProfile(w http.ResponseWriter, r *http.Request) {
	seconds := defaultProfile
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			http.Error(w, "seconds must be a number above 0", http.StatusBadRequest)
			return
		}
		seconds = n
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
}
