// Package reliability holds tests that break things on purpose around the whole
// program: serve is killed at every step, engines come and go under load, disks
// are full. docs/reliability.md says what is promised; nothing here is shipped.
package reliability
