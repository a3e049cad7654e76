package procroot

import "testing"

// FuzzIDMap: an ID of the container is unchanged after mapping it to the host and back. Unmapped IDs stay unmapped.
func FuzzIDMap(f *testing.F) {
	f.Add([]byte("         0     100000      65536\n"), 7)
	f.Add([]byte("0 1000 1\n1 100000 65536\n"), 0)
	f.Add([]byte("0 0 4294967295\n"), 65534)
	f.Add([]byte("x"), 1)
	f.Add([]byte("0 9223372036854775807 9223372036854775807"), 5)
	f.Fuzz(func(t *testing.T, text []byte, id int) {
		m, err := parseIDMap(text)
		if err != nil || id < 0 || int64(id) >= 1<<32 {
			return
		}
		for _, r := range m { // the kernel rejects other ranges
			if r.inside < 0 || r.outside < 0 || r.count < 1 || r.inside+r.count > 1<<32 || r.outside+r.count > 1<<32 || r.count > 1<<32 {
				return
			}
		}
		for i, a := range m {
			for _, b := range m[:i] {
				if a.inside < b.inside+b.count && b.inside < a.inside+a.count || a.outside < b.outside+b.count && b.outside < a.outside+a.count {
					return
				}
			}
		}
		if host := m.host(id); host != keep && m.container(host) != id {
			t.Errorf("%d is %d on the host, which is %d in the container", id, host, m.container(host))
		}
		if in := m.container(id); in != nobody && m.host(in) != id {
			t.Errorf("%d is %d in the container, which is %d on the host", id, in, m.host(in))
		}
	})
}
