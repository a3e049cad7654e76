// Package manifest reads Pod manifests the way people write them: v1 Pod, List and
// several documents in a file, with the ConfigMaps, Secrets and RuntimeClasses the pods
// use in the same input.
//
// Reading is strict. Every problem names the file, the document and the field's path, and
// all problems of an input are reported together, before anything is created. The package
// also fills in the defaults that an API server would (Default) and refuses what only a
// cluster or a volume plugin could deliver (Validate). It talks to no runtime.
package manifest
