// Package build holds nothing but a go.mod: the dependencies of kube-apiserver
// and etcd, and nobody else's, so that both are built from the very module
// versions that their authors chose. Package cluster builds them.
package build
