var e={render(){}};export{e as default};
